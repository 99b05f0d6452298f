"""An answer is judged as the only action of an episode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rla_programs.answering.answers import UNENDED, JudgedAnswer, judge_answer
from rla_programs.answering.voting import SaidEpisode

from rla.envs.observation import EnvironmentFailure, Observation
from rla.envs.protocols import PolicyPrompt
from rla.store.records import Task
from tests.unit.builders import task


class Upper:
    """Reads replies that begin with =, as the text behind it."""

    def parse(self, reply: str, commands: Sequence[str]) -> str | None:
        return reply[1:] if reply.startswith("=") else None


class Question:
    """Accepts 2, goes on after `call`, breaks at `break`."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def reset(self) -> Observation:
        return Observation(text="1 + 1")

    def step(self, action: str) -> Observation:
        self.told.append(action)
        if action == "break":
            raise EnvironmentFailure("the sandbox is gone")
        return Observation(text="", done=action != "call", reward=float(action == "2"))

    def close(self) -> None:
        self.told.append("closed")


class Later(Question):
    """The same, answered later."""

    async def reset(self) -> Observation:  # type: ignore[override]
        return super().reset()

    async def step(self, action: str) -> Observation:  # type: ignore[override]
        return super().step(action)


def judged(response: str, made: Any = None) -> JudgedAnswer:
    prompt: Any = Upper()
    asked: PolicyPrompt = prompt

    def class_of(said: SaidEpisode) -> str | None:
        return f"{said.task_id}:{said.actions[-1]}" if said.ended else None

    environment: Any = made or Question()

    def make(_: Task) -> Any:
        return environment

    return asyncio.run(judge_answer(task("t"), response, make, asked, 1.0, class_of))


def test_a_right_answer_is_won_and_votes() -> None:
    found = judged("=2")
    assert found.episode.won and found.read and not found.error and found.vote == "t:2"


def test_an_environment_that_answers_later_judges_alike() -> None:
    assert judged("=2", Later()) == judged("=2") and judged("=3", Later()) == judged("=3")


def test_what_cannot_be_read_is_told_as_no_action_and_lost() -> None:
    environment = Question()
    found = judged("2", environment)
    assert environment.told == ["no action", "closed"]
    assert not found.read and not found.episode.won and not found.episode.broken and found.vote is None


def test_an_episode_that_goes_on_is_an_error() -> None:
    found = judged("=call")
    assert found.error == UNENDED and found.episode.broken


def test_an_environment_that_breaks_is_an_error_and_is_closed() -> None:
    environment = Question()
    found = judged("=break", environment)
    assert found.error == "the sandbox is gone" and found.episode.broken and environment.told[-1] == "closed"
