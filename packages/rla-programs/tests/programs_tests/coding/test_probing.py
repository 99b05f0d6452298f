"""Written tests: every program is tried on every one, and the texts and tokens are stored once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rla_programs.coding.probing import CodingProber, reference_row

from rla.store.records import Judgement, Task
from tests.unit.builders import task as make_task


class Letters(CodingProber):
    """A program passes a reply whose letters it has; a reply that is not letters is no test."""

    def __init__(self, known: str | None = None) -> None:
        self.known = known

    async def tried(self, task: Task, actions: Sequence[str], replies: Sequence[str | None]) -> list[list[int | None]]:
        return [
            [None if reply is None or not reply.isalpha() else 1 if set(reply) <= set(a) else -1 for reply in replies]
            for a in actions
        ]

    async def reference(self, task: Task) -> str | None:
        return self.known


def written(text: str, *, truncated: bool = False) -> Judgement:
    return Judgement(score=None, text=text, truncated=truncated, token_ids=[1], logprobs=[-1.0], allowed=[[]])


def judged(prober: Letters, *replies: Judgement, programs: Sequence[str]) -> list[tuple[str, list[Judgement]]]:
    rows: list[dict[str, Any]] = [
        {"trajectory_id": f"t{number}", "steps": [{"action": program}]} for number, program in enumerate(programs)
    ]
    return asyncio.run(prober.judged(make_task("q"), rows, replies))


def test_every_program_is_tried_on_every_reply_and_tokens_are_stored_once() -> None:
    replies = [written("ab"), written("a"), written("?")]
    found = judged(Letters(known="b"), *replies, programs=["abc", "ac"])
    assert [name for name, _ in found] == ["t0", "t1", reference_row("q")]
    assert [[one.score for one in votes] for _, votes in found] == [[1, 1, None], [-1, 1, None], [-1, -1, None]]
    (_, first), *others = found
    assert [(one.text, one.token_ids, one.logprobs) for one in first] == [
        (text, [1], [-1.0]) for text in ("ab", "a", "?")
    ]
    assert not any(one.text or one.token_ids or one.logprobs or one.allowed for _, votes in others for one in votes)


def test_a_reply_that_was_cut_is_no_test() -> None:
    ((_, votes),) = judged(Letters(), written("a", truncated=True), written("a"), programs=["abc"])
    assert [(one.truncated, one.score) for one in votes] == [(True, None), (False, 1)]
