"""An environment to collect from: a sum, a tool that adds, and a solver that errs now and then."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rla.config import Config
from rla.envs.authoring import root_task
from rla.envs.chat_prompts import ChatPrompt
from rla.envs.observation import CallResult, EnvironmentFailure, Observation
from rla.envs.protocols import Demonstration
from rla.store.records import Task

CALL = "add"
SCHEMA = {"type": "function", "function": {"name": CALL, "parameters": {"type": "object", "properties": {}}}}


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsParams:
    """Parameters of the environment."""

    role: str = "tool"  # of results
    broken: bool = False  # the tool fails


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsPrompt(ChatPrompt):
    """Has schemas if results are turns of their own."""

    result_role: str = "tool"
    listed: bool = False

    @property
    def schemas(self) -> Sequence[Mapping[str, Any]]:
        return (SCHEMA,) if self.result_role == "tool" else ()

    def calls_in(self, reply: str) -> Sequence[tuple[str, Mapping[str, Any], str]]:
        return [(CALL, {}, "")] if reply.endswith(CALL) else []

    def unread_call(self, reply: str, name: str, arguments: Mapping[str, Any]) -> str:
        return ""  # any call of a chat template will do

    def written(self, text: str, calls: Sequence[tuple[str, str]]) -> str:
        return " ".join([text, *(name for name, _ in calls)]).strip()


class Sum:
    """One episode."""

    def __init__(self, numbers: list[int], *, broken: bool) -> None:
        self.numbers, self.broken = numbers, broken

    def reset(self) -> Observation:
        return Observation(text=f"Add {self.numbers[0]} and {self.numbers[1]}.")

    def step(self, action: str) -> Observation:
        if action.endswith(CALL):
            if self.broken:
                raise EnvironmentFailure("the tool is away")
            total = str(sum(self.numbers))
            return Observation(text=total, results=(CallResult(total, "ok"),))
        return Observation(text="Taken.", done=True, reward=float(action.endswith(f" {sum(self.numbers)}")))

    def close(self) -> None:
        """Nothing is open."""


class Unsolved:
    """An `Env` without a solver. Two of its tasks ask the same."""

    name = "sums"
    Params = SumsParams

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        first = 0 if split == config.tasks.train_split else 100
        numbers = [(first + place, first + 5) for place in range(4)] + [(first, first + 5)]
        return [
            root_task(
                env=self.name,
                split=split,
                instruction=f"Add {left} and {right}.",
                content={"numbers": [left, right], "place": place},
                kind="even" if place % 2 == 0 else "odd",
                scene="",
            )
            for place, (left, right) in enumerate(numbers)
        ]

    def make(self, task: Task, config: Config) -> Sum:
        return Sum(json.loads(task.payload)["numbers"], broken=config.env.own.broken)

    def policy_prompt(self, config: Config) -> SumsPrompt:
        return SumsPrompt(result_role=config.env.own.role)


class Sums(Unsolved):
    """The same with one."""

    def solve(self, task: Task, config: Config, history: Sequence[tuple[str, str]], seed: int) -> str:
        if not history:
            return f"I ask. {CALL}" if seed % 4 else "It is 0"  # an answer that is wrong
        return f"It is {history[-1][1]}"


class Stitched(Sums):
    """The same with episodes that nobody has played."""

    def stitch(self, task: Task, config: Config, *, seed: int) -> Demonstration:
        return Demonstration(
            observations=[task.instruction, "99"],
            commands=[(), ()],
            actions=[f"By hand it is 99. {CALL}", "It is 99"],
            final_observation="Taken.",
            won=True,
        )
