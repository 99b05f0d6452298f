"""Tests that the reward model writes for a task, tried on programs: `rla.envs.protocols.Prober`.

A written test is an input with its expected output. The problem's checker compares it with a program's output, as for a
given test; a test is never compared with the ground truth here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rla.envs.protocols import Message
from rla.store.records import Task
from rla_programs.coding.data.problems import Problem, Test, problem_of
from rla_programs.coding.running import Runner
from rla_programs.coding.writing import Written, read_test

TRUSTED = "builtin/"  # our own problems, whose solutions a test of the library runs


class WritingPrompt(Protocol):
    """The prompt that asks for a test, and its parser and renderer (`rla_programs.coding.writing`)."""

    def messages(self, problem: Problem) -> list[Message]: ...

    def parse(self, reply: str) -> Written | None: ...

    def render(self, test: Test) -> str: ...


class CodingProber:
    """Raises UserError if no program can be run on this machine."""

    def __init__(self, prompt: WritingPrompt, runner: Runner) -> None:
        self._prompt, self._runner = prompt, runner

    def messages(self, task: Task) -> list[Message]:
        return self._prompt.messages(problem_of(task.payload))

    async def tried(self, task: Task, actions: Sequence[str], replies: Sequence[str | None]) -> list[list[int | None]]:
        problem = problem_of(task.payload)
        read = [None if reply is None else read_test(problem, self._prompt.parse(reply)) for reply in replies]
        unique = {repr(test): test for test in read if test is not None}
        column = {name: number for number, name in enumerate(unique)}
        table = await self._runner.table(problem, actions, list(unique.values()))
        return [[None if test is None else (1 if row[column[repr(test)]] else -1) for test in read] for row in table]

    async def reference(self, task: Task) -> str | None:
        """The problem's solution. A data set's solution has never been run, and must pass all given tests first."""
        problem = problem_of(task.payload)
        if problem.solution is None or problem.source.startswith(TRUSTED):
            return problem.solution
        passes = await self._runner.passes(problem, problem.solution, problem.tests)
        return problem.solution if all(passes) else None

    async def close(self) -> None:
        await self._runner.close()
