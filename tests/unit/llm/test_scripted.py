"""The scripted generator: the same request, the same reply."""

from __future__ import annotations

import asyncio
import math

import pytest

from rla.llm.base import Completion, FinishReason, Request, TokenTrie
from rla.llm.factory import ScriptedGenerator

TRIE = TokenTrie([[5, 1, 9], [5, 2, 9], [6, 9]])


def ask(generator: ScriptedGenerator, **changes: object) -> list[Completion]:
    fields: dict[str, object] = {"prompt_ids": [1, 2], "max_tokens": 8, "temperature": 1.0, "seed": 0}
    return asyncio.run(generator.generate(Request(**{**fields, **changes})))  # type: ignore[arg-type]


def test_default_picks_every_path_by_seed_and_always_the_same() -> None:
    generator = ScriptedGenerator(stop_id=9)
    replies = [ask(generator, allowed=TRIE, seed=seed)[0].token_ids for seed in range(30)]
    assert {tuple(reply) for reply in replies} == {(5, 1, 9), (5, 2, 9), (6, 9)}
    assert replies == [ask(generator, allowed=TRIE, seed=seed)[0].token_ids for seed in range(30)]


def test_log_probabilities_are_uniform_over_what_is_offered() -> None:
    (reply,) = ask(ScriptedGenerator(lambda request, seed: [5, 2, 9]), allowed=TRIE)
    assert reply.allowed == [[5, 6], [1, 2], [9]]
    assert reply.logprobs == pytest.approx([-math.log(2), -math.log(2), 0.0])
    assert reply.finish_reason is FinishReason.STOP


def test_samples_draw_from_consecutive_seeds() -> None:
    replies = ask(ScriptedGenerator(lambda request, seed: [seed]), seed=7, samples=3)
    assert [reply.token_ids for reply in replies] == [[7], [8], [9]]


def test_a_reply_is_cut_at_max_tokens() -> None:
    (reply,) = ask(ScriptedGenerator(lambda request, seed: [1, 2, 3]), max_tokens=2)
    assert reply.token_ids == [1, 2]
    assert reply.finish_reason is FinishReason.LENGTH


def test_a_reply_off_the_trie_is_an_error() -> None:
    with pytest.raises(KeyError):
        ask(ScriptedGenerator(lambda request, seed: [7]), allowed=TRIE)


def test_context_is_enforced() -> None:
    with pytest.raises(ValueError, match="2 tokens"):
        ask(ScriptedGenerator(context=9))


@pytest.mark.parametrize("trains", [{"session": "episode"}, {"allowed": TokenTrie([[1, 2]])}])
def test_a_schema_is_refused_where_the_reply_may_train(trains: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="do not train"):
        ask(ScriptedGenerator(), json_schema={"type": "object"}, **trains)
