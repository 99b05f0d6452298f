"""Tests that the reward model writes for a task, tried on programs: `rla.envs.protocols.Prober`.

A written test is an input with its expected output. The problem's checker compares it with a program's output, as for a
given test; a test is never compared with the ground truth here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rla.envs.protocols import Message
from rla.store.records import Judgement, Task
from rla_programs.coding.data.problems import Problem, Test, problem_of
from rla_programs.coding.running import Runner
from rla_programs.coding.writing import Written, read_test

TRUSTED = "builtin/"  # our own problems, whose solutions a test of the library runs


class WritingPrompt(Protocol):
    """The prompt that asks for a test, and its parser and renderer (`rla_programs.coding.writing`)."""

    def messages(self, problem: Problem) -> list[Message]: ...

    def parse(self, reply: str) -> Written | None: ...

    def render(self, test: Test) -> str: ...


def reference_row(task_id: str) -> str:
    """The trajectory id of a task's reference in a scores shard."""
    return f"reference-{task_id}"


class CodingProber:
    """Raises UserError if no program can be run on this machine."""

    def __init__(self, prompt: WritingPrompt, runner: Runner) -> None:
        self._prompt, self._runner = prompt, runner

    def messages(self, task: Task) -> list[Message]:
        return self._prompt.messages(problem_of(task.payload))

    async def judged(
        self, task: Task, rows: Sequence[Mapping[str, Any]], replies: Sequence[Judgement]
    ) -> list[tuple[str, list[Judgement]]]:
        """The scores of the written tests for each program, and for the reference if there is one."""
        named = [(str(row["trajectory_id"]), str(row["steps"][0]["action"])) for row in rows]
        known = await self.reference(task)
        if known is not None:
            named.append((reference_row(task.task_id), known))
        texts = [None if one.truncated else one.text for one in replies]
        table = await self.tried(task, [action for _, action in named], texts)
        found = []
        for (name, _), scores in zip(named, table, strict=True):
            found.append((name, [replace(one, score=score) for one, score in zip(replies, scores, strict=True)]))
            replies = [replace(one, text="", token_ids=[], logprobs=[], allowed=[]) for one in replies]
        return found

    async def tried(self, task: Task, actions: Sequence[str], replies: Sequence[str | None]) -> list[list[int | None]]:
        """[action][reply]: +1 if the program passes the test, -1 if not, None if the reply is no test or was cut."""
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
