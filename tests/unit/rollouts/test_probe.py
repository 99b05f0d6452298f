"""Replies about whole tasks: sampled once, tried on the actions of all trajectories, stored with the first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rla.config.sections import JudgeConfig
from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Message, reference_row
from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.llm.scripted import ScriptedGenerator
from rla.rollouts.scores import EngineReplier, Probing, probe_tasks
from rla.store.records import StepScore, Task
from tests.unit.builders import task as make_task
from tests.unit.llm.test_chat import byte_tokenizer

CHAT = ChatFormat(byte_tokenizer())
REPLIES = ["ab", "a", "?"]


class Letters:
    """An action passes a reply whose letters it has; a reply that is not letters is none."""

    def __init__(self, *, known: str | None = None, failing: bool = False) -> None:
        self.known, self.failing, self.closed = known, failing, False

    def messages(self, task: Task) -> list[Message]:
        return [{"role": "user", "content": task.instruction}]

    async def tried(self, task: Task, actions: Sequence[str], replies: Sequence[str | None]) -> list[list[int | None]]:
        if self.failing:
            raise EnvironmentFailure("no box")
        return [
            [None if reply is None or not reply.isalpha() else 1 if set(reply) <= set(a) else -1 for reply in replies]
            for a in actions
        ]

    async def reference(self, task: Task) -> str | None:
        return self.known

    async def close(self) -> None:
        self.closed = True


def played(*actions: str, stop: str = "won") -> list[dict[str, Any]]:
    return [
        {"trajectory_id": f"t{n}", "task_id": "q", "stop_reason": stop, "steps": [{"action": action}]}
        for n, action in enumerate(actions)
    ]


def probed(rows: list[dict[str, Any]], prober: Letters, *, max_tokens: int = 9, context: int = 999) -> list[StepScore]:
    def reply(request: Request, seed: int) -> list[int]:
        return [*CHAT.encode(REPLIES[seed - request.seed]), CHAT.end_id]

    heard: list[StepScore] = []
    shared = Probing(
        replier=EngineReplier(
            generator=ScriptedGenerator(reply, context=context),
            chat=CHAT,
            config=JudgeConfig(votes=3, max_tokens=max_tokens),
        ),
        prober=prober,
        seed=1,
        voted=heard.append,
    )
    found: dict[int, list[StepScore]] = {}
    task = make_task("q")
    asyncio.run(probe_tasks([(task, rows)], shared, concurrency=2, finished=found.__setitem__))
    assert prober.closed and heard == [row for row in found[0] if row.prompt_ids and row.judgements]
    return found[0]


def test_every_program_is_tried_on_every_reply_and_tokens_are_stored_once() -> None:
    rows = probed(played("abc", "ac"), Letters(known="b"))
    assert [row.trajectory_id for row in rows] == ["t0", "t1", reference_row("q")]
    assert [[one.score for one in row.judgements] for row in rows] == [[1, 1, None], [-1, 1, None], [-1, -1, None]]
    assert [row.mean_score for row in rows] == [1.0, 0.0, -1.0]
    assert [one.text for one in rows[0].judgements] == REPLIES and rows[0].prompt_ids
    assert all(len(one.token_ids) == len(one.logprobs) > 0 for one in rows[0].judgements)
    for row in rows[1:]:
        assert not row.prompt_ids and not any(one.token_ids or one.text for one in row.judgements)


def test_a_reply_that_was_cut_is_no_test() -> None:
    (row,) = probed(played("abc"), Letters(), max_tokens=2)
    assert [(one.truncated, one.score) for one in row.judgements] == [(True, None), (False, 1), (False, None)]


def test_what_cannot_be_asked_or_tried_leaves_rows_without_judgements() -> None:
    for rows in (probed(played("a", "b"), Letters(), context=10), probed(played("a", "b"), Letters(failing=True))):
        assert [(row.trajectory_id, row.judgements) for row in rows] == [("t0", []), ("t1", [])]


def test_episodes_that_the_environment_broke_are_not_tried() -> None:
    assert probed(played("a", stop="env_error"), Letters()) == []
