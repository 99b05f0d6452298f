"""Replies about whole tasks: sampled once, and judged by the environment for all trajectories."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rla.config.sections import JudgeConfig
from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Message
from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator
from rla.rollouts.scores import EngineReplier, probe_task
from rla.store.records import Judgement, StepScore, Task
from tests.unit.builders import task as make_task
from tests.unit.llm.test_chat import byte_tokenizer

CHAT = ChatFormat(byte_tokenizer())
REPLIES = ["ab", "a", "?"]


class Letters:
    """An action passes a reply whose letters it has; a reply that is not letters is none."""

    def __init__(self, *, failing: bool = False) -> None:
        self.failing = failing

    def messages(self, task: Task) -> list[Message]:
        return [{"role": "user", "content": task.instruction}]

    async def judged(
        self, task: Task, rows: Sequence[Any], replies: Sequence[Judgement]
    ) -> list[tuple[str, list[Judgement]]]:
        if self.failing:
            raise EnvironmentFailure("no box")
        return [
            (
                row["trajectory_id"],
                [
                    replace(one, score=(1 if set(one.text) <= set(row["steps"][0]["action"]) else -1))
                    for one in replies
                    if one.text.isalpha()
                ],
            )
            for row in rows
        ]

    async def close(self) -> None: ...


def played(*actions: str, stop: str = "won") -> list[dict[str, Any]]:
    return [
        {"trajectory_id": f"t{n}", "task_id": "q", "stop_reason": stop, "steps": [{"action": action}]}
        for n, action in enumerate(actions)
    ]


def probed(rows: list[dict[str, Any]], *, failing: bool = False, context: int = 999) -> list[StepScore]:
    def reply(request: Request, seed: int) -> list[int]:
        return [*CHAT.encode(REPLIES[seed - request.seed]), CHAT.end_id]

    engine = ScriptedGenerator(reply, context=context)
    replier = EngineReplier(generator=engine, chat=CHAT, config=JudgeConfig(votes=3, max_tokens=9))
    return asyncio.run(probe_task(make_task("q"), rows, Letters(failing=failing), replier, seed=1))


def test_the_prompt_and_the_environments_judgements_are_the_rows() -> None:
    rows = probed(played("abc", "ac"))
    assert [(row.trajectory_id, row.task_id, row.step) for row in rows] == [("t0", "q", 0), ("t1", "q", 0)]
    assert [[one.score for one in row.judgements] for row in rows] == [[1, 1], [-1, 1]]
    assert [row.mean_score for row in rows] == [1.0, 0.0]
    assert rows[0].prompt_ids and not rows[1].prompt_ids


def test_what_cannot_be_asked_or_tried_leaves_rows_without_judgements() -> None:
    for rows in (probed(played("a", "b"), context=10), probed(played("a", "b"), failing=True)):
        assert [(row.trajectory_id, row.judgements) for row in rows] == [("t0", []), ("t1", [])]


def test_episodes_that_the_environment_broke_are_not_tried() -> None:
    assert probed(played("a", stop="env_error")) == []
