"""Hostile edits of problems, and hostile replies of those who write programs and tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.store.records import Task
from tests.attack.areas import Needs, Numbered, Try
from tests.attack.hostile_texts import edit_trial, reply_trial
from tests.attack.known import Reading, policy_reading
from tests.attack.small_run import World


def problem_task() -> Task:
    from rla_programs.coding.tasks import builtin_problems

    (task,) = builtin_problems(seed=3, count=1, tests=4, levels=(1,), kinds=("stdio",))
    return task


@dataclass(frozen=True, slots=True)
class ProgramEdits(Numbered):
    """Edits of a coding task."""

    name: str = "edits of problems"
    together: int = 200

    def opened(self, world: World, scratch: Path) -> Try:
        task = problem_task()
        return edit_trial(world, self.name, task, [json.loads(task.payload)])


@dataclass(frozen=True, slots=True)
class ProgramReplies(Numbered):
    """Texts that every reader of programs and tests gets."""

    name: str = "replies with programs"
    together: int = 200
    needs: Needs = Needs.RUN

    def opened(self, world: World, scratch: Path) -> Try:
        return reply_trial(world, self.name, lambda chat: readers())


def readers() -> dict[str, Reading]:
    from rla_programs.coding.data.problems import problem_of
    from rla_programs.coding.prompts import PlainProgramPrompt, PublishedProgramPrompt
    from rla_programs.coding.writing import PlainTestPrompt, PublishedTestPrompt, read_test

    problem = problem_of(problem_task().payload)

    def writer(prompt: Any) -> Reading:
        def read(reply: str, _: Sequence[int]) -> str | None:
            read_test(problem, prompt.parse(reply))
            return None

        return read

    return {
        "plain program": policy_reading(PlainProgramPrompt()),
        "published program": policy_reading(PublishedProgramPrompt()),
        "plain test": writer(PlainTestPrompt()),
        "published test": writer(PublishedTestPrompt()),
    }
