"""A completions server as an engine: what in-process replies are, through drops, stalls and errors."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from dataclasses import replace

import pytest
from rla_bridges.engines import chat_server
from rla_bridges.engines.chat_server import JsonClient
from rla_bridges.engines.completions import API_KEY, SECTION, UNKNOWN, ServerGenerator

from bridges_tests.engines.completions_server import CompletionsServer, Fault
from rla.errors import UserError
from rla.llm.base import Completion, Request, TokenTrie, UnusableReply, replies_to, restricted
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator
from rla.models.init import new_tokenizer

CHAT = ChatFormat(new_tokenizer(["go to door 1 2 3"], context=64))
TRIE = TokenTrie([[5, 6, 9], [5, 7, 9], [8, 9]])
FREE = Request(prompt_ids=[1, 2, 3], max_tokens=4, temperature=0.7, seed=11, samples=3)
RESTRICTED = replace(FREE, allowed=TRIE)


def reply(request: Request, seed: int) -> list[int]:
    """Six tokens by the hash of prompt and seed, or one that is allowed."""
    state = hashlib.sha256(f"{seed}:{list(request.prompt_ids)}".encode()).digest()
    choices = list(request.allowed.root) if request.allowed else []
    return [choices[state[0] % len(choices)]] if choices else [10 + value % 8 for value in state[:6]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_server, "SILENCE", 5.0)
    monkeypatch.setattr(chat_server, "PATIENCE", 5.0)


def engine_of(server: CompletionsServer, *, training: bool = True) -> ServerGenerator:
    client = JsonClient(server.url, section=SECTION, secret=API_KEY, connections=8)
    return ServerGenerator(client, model="tiny", context=64, chat=CHAT, training=training)


def ask(engine: ServerGenerator, *requests: Request) -> list[list[Completion]]:
    async def all_of_them() -> list[list[Completion]]:
        return list(await asyncio.gather(*(engine.generate(request) for request in requests)))

    return asyncio.run(all_of_them())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_server, "FIRST_DELAY", 0.01)


def in_process(request: Request) -> list[Completion]:
    """The replies of the engine behind the server, asked for token by token where the request is restricted."""
    engine = ScriptedGenerator(reply)

    async def choose(prompt: list[int], seed: int, choices: list[int]) -> tuple[int, float]:
        trie = TokenTrie([token] for token in choices)
        (completion,) = await engine.generate(
            Request(prompt_ids=prompt, max_tokens=1, temperature=request.temperature, seed=seed, allowed=trie)
        )
        return completion.token_ids[0], completion.logprobs[0]

    return asyncio.run(engine.generate(request) if request.allowed is None else restricted(request, choose))


@pytest.mark.parametrize("request_", [FREE, RESTRICTED], ids=["free", "restricted"])
def test_replies_are_those_of_the_engine_behind_the_server(request_: Request) -> None:
    with CompletionsServer(ScriptedGenerator(reply)) as server:
        (found,) = ask(engine_of(server), request_)
    assert found == in_process(request_)
    assert len({tuple(completion.token_ids) for completion in found}) > 1


def test_a_restricted_reply_is_renormalised_over_what_is_offered_and_forced_tokens_are_not_asked_for() -> None:
    with CompletionsServer(ScriptedGenerator(lambda request, seed: [min(request.allowed.root)])) as server:  # type: ignore[union-attr]
        ((completion,),) = ask(engine_of(server), replace(RESTRICTED, samples=1))
    assert completion.token_ids == [5, 6, 9] and completion.allowed == [[5, 8], [6, 7], [9]]
    assert completion.logprobs == pytest.approx([-math.log(2), -math.log(2), 0.0])
    assert [body["allowed_token_ids"] for body in server.requests] == [[5, 8], [6, 7]]


def test_nothing_is_left_to_the_servers_defaults() -> None:
    with CompletionsServer(ScriptedGenerator(reply)) as server:
        ask(engine_of(server), FREE)
    (body,) = server.requests
    assert (body["top_p"], body["top_k"], body["min_p"], body["repetition_penalty"]) == (1.0, 0, 0.0, 1.0)
    assert body["ignore_eos"] and body["stop_token_ids"] == sorted(CHAT.stop_ids)
    assert (body["prompt"], body["n"], body["seed"], body["return_token_ids"]) == ([1, 2, 3], 3, 11, True)


def test_top_p_goes_along_where_nothing_trains() -> None:
    with CompletionsServer(ScriptedGenerator(reply)) as server:
        engine = engine_of(server, training=False)
        ask(engine, replace(FREE, top_p=0.6))
        ask(engine, replace(RESTRICTED, samples=1, top_p=0.6))
        assert len(server.requests) > 1
        assert {body["top_p"] for body in server.requests} == {0.6}
        with pytest.raises(ValueError, match="a top_p below 1 is for replies that do not train"):
            asyncio.run(engine_of(server).generate(replace(FREE, top_p=0.6)))


def test_a_schema_goes_along_where_nothing_trains() -> None:
    asked = replace(FREE, json_schema={"type": "object"})
    with CompletionsServer(ScriptedGenerator(reply)) as server:
        ask(engine_of(server, training=False), asked, FREE)
        with pytest.raises(ValueError, match="do not train"):
            asyncio.run(engine_of(server).generate(asked))
    formats = [body.get("response_format") for body in server.requests]
    assert formats == [{"type": "json_schema", "json_schema": {"name": "reply", "schema": {"type": "object"}}}, None]


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.REFUSED])
def test_a_fault_changes_no_reply(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_server, "SILENCE", 0.2)
    requests = [replace(FREE, seed=seed) for seed in range(6)]
    with CompletionsServer(
        ScriptedGenerator(reply), faults=lambda number: fault if number % 2 == 0 else None
    ) as server:
        found = ask(engine_of(server), *requests)
    assert found == [in_process(request) for request in requests]
    assert len(server.requests) >= 9


def test_a_server_that_stays_away_is_given_up_after_the_stated_time(
    logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_server, "PATIENCE", 0.3)
    with CompletionsServer(ScriptedGenerator(reply), faults=lambda number: Fault.BROKEN) as server:
        started = time.monotonic()
        with pytest.raises(UserError, match=r"500: Internal Server Error; tried again for 0\.3 s"):
            ask(engine_of(server), FREE)
        assert time.monotonic() - started < 2
    assert 3 <= len(server.requests) <= 12  # delays double
    assert [one for one in logged if "trying again" in one] == [
        f"{server.url}: status 500: Internal Server Error; trying again for up to 0.3 s"
    ]


def test_nobody_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_server, "PATIENCE", 0.1)
    with CompletionsServer(ScriptedGenerator(reply)) as server:
        engine = engine_of(server)
    with pytest.raises(UserError, match=f"{server.url}.*Start the server or correct generator.own.url"):
        ask(engine, FREE)


def test_a_refusal_is_final_and_carries_the_servers_message() -> None:
    with (
        CompletionsServer(ScriptedGenerator(reply), faults=lambda number: Fault.REFUSED) as server,
        pytest.raises(UserError, match="status 400: this model cannot do that"),
    ):
        ask(engine_of(server), FREE)
    assert len(server.requests) == 1


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with CompletionsServer(ScriptedGenerator(reply), key="secret") as server:
        client = JsonClient(server.url, section=SECTION, secret=API_KEY, connections=1)
        with pytest.raises(UserError, match=f"401: no such key; .*{API_KEY}") as refusal:
            asyncio.run(client.ask("/models"))
        assert "secret" not in str(refusal.value)
        monkeypatch.setenv(API_KEY, "secret")
        assert asyncio.run(client.ask("/models"))["data"] == [{"id": "tiny"}]


def test_what_is_not_a_completions_server_says_so() -> None:
    with CompletionsServer(ScriptedGenerator(reply)) as server:
        client = JsonClient(server.url.removesuffix("/v1"), section=SECTION, secret=API_KEY, connections=1)
        with pytest.raises(UserError, match=r"404.*set generator\.own\.url to the base URL"):
            asyncio.run(client.ask("/models"))


@pytest.mark.parametrize(
    ("omit", "message"),
    [("token_ids", "returns no token ids"), ("logprobs", "returns no log-probability for each token")],
)
def test_training_data_needs_ids_and_log_probabilities(omit: str, message: str) -> None:
    with (
        CompletionsServer(ScriptedGenerator(reply), omit=[omit]) as server,
        pytest.raises(UserError, match=f"generator.own.url {server.url}: {message}"),
    ):
        ask(engine_of(server), FREE)


def test_evaluation_takes_ids_from_the_text_and_marks_log_probabilities_as_unknown() -> None:
    def door(request: Request, seed: int) -> list[int]:
        return [*CHAT.encode("go to door 1"), CHAT.end_id]

    request = replace(FREE, max_tokens=8, samples=1)
    with CompletionsServer(ScriptedGenerator(door), omit=["token_ids", "logprobs"], text=CHAT.decode) as server:
        ((completion,),) = ask(engine_of(server, training=False), request)
    assert completion.token_ids == door(request, 0)
    assert completion.logprobs == [UNKNOWN] * len(completion.token_ids)


def test_a_server_that_does_not_restrict_is_refused() -> None:
    def anything(request: Request, completion: Completion) -> list[float]:
        completion.token_ids[0] = 40
        return completion.logprobs

    with (
        CompletionsServer(ScriptedGenerator(reply), report=anything) as server,
        pytest.raises(UserError, match="does not restrict a reply to allowed_token_ids"),
    ):
        ask(engine_of(server, training=False), RESTRICTED)


def test_a_prompt_that_does_not_fit_is_not_sent() -> None:
    with (
        CompletionsServer(ScriptedGenerator(reply)) as server,
        pytest.raises(ValueError, match="exceed the context"),
    ):
        ask(engine_of(server), replace(FREE, prompt_ids=[1] * 61))
    assert server.requests == []


@pytest.mark.parametrize("logprob", [math.nan, -math.inf, -9999.0, 0.7, None])
def test_a_log_probability_that_no_sampler_has_is_asked_for_again(logprob: float | None) -> None:
    """-9999 is vLLM's minus infinity, and null what some servers make of NaN."""
    answers: list[int] = []

    def first_is_odd(request: Request, completion: Completion) -> list[float | None]:
        answers.append(1)
        return [logprob if len(answers) == 1 else -0.5, *completion.logprobs[1:]]

    request = replace(FREE, samples=1)
    with CompletionsServer(ScriptedGenerator(reply), report=first_is_odd) as server:  # type: ignore[arg-type]
        (completion,) = asyncio.run(replies_to(engine_of(server), request))
    assert completion.logprobs[0] == -0.5 and len(answers) == 2
    assert len({asked["seed"] for asked in server.requests}) == 2


@pytest.mark.parametrize("request_", [FREE, RESTRICTED], ids=["free", "restricted"])
@pytest.mark.parametrize("logprob", [math.nan, 0.7])
def test_a_server_that_always_reports_such_numbers_is_given_up(logprob: float, request_: Request) -> None:
    with (
        CompletionsServer(ScriptedGenerator(reply), report=lambda r, c: [logprob] * len(c.logprobs)) as server,
        pytest.raises(UnusableReply, match="a log-probability of"),
    ):
        asyncio.run(replies_to(engine_of(server), request_))


def test_a_log_probability_that_rounding_lifted_is_zero() -> None:
    with CompletionsServer(ScriptedGenerator(reply), report=lambda r, c: [1e-6] * len(c.logprobs)) as server:
        ((completion, *_),) = ask(engine_of(server), FREE)
    assert completion.logprobs == [0.0] * len(completion.token_ids)
