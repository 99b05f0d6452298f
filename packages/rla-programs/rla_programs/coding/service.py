"""A problem as an environment of one step: the question, then the verdict on the program.

The verdict is one line that the environment writes, `tests: 11010`: a digit for each given test, 1 if the program
passes it. Tests that were not run, because the program waited in an earlier one, count as failed; the line then ends
with ` (3 not run)`. It is the last observation of the episode, and the only result that rewards and metrics read.

Programs are run by a sandbox that the episodes of a stage share and that has enough processes. So the environment
answers asynchronously (`AwaitedEnvironment`), and a pool of worker processes is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rla.envs.observation import AwaitedEnvironment, EnvironmentFailure, Observation
from rla.store.records import Task
from rla_programs.coding.data.problems import Problem, problem_of, question
from rla_programs.coding.running import Runner
from rla_programs.execution.records import ExecutionConfig

VERDICT = re.compile(r"tests: ([01]+)(?: \(\d+ not run\))?", re.ASCII)


def told(passes: Sequence[bool], *, unrun: int = 0) -> str:
    """The verdict as a line; `unrun` is the number of tests that were not run, among those not passed."""
    digits = "".join("1" if passed else "0" for passed in passes)
    return f"tests: {digits} ({unrun} not run)" if unrun else f"tests: {digits}"


def passed(observation: str) -> list[bool] | None:
    """The verdict in a line; None if it is another text."""
    found = VERDICT.fullmatch(observation)
    return None if found is None else [digit == "1" for digit in found[1]]


class Examination:
    """One episode: `AwaitedEnvironment`. Raises EnvironmentFailure if the sandbox fails."""

    def __init__(self, problem: Problem, runner: Runner) -> None:
        self._problem, self._runner = problem, runner
        self._over = True

    async def reset(self) -> Observation:
        self._over = False
        return Observation(text=question(self._problem), commands=(), won=False, done=False)

    async def step(self, action: str) -> Observation:
        """The verdict on the program `action`. A text that is not a program is run as well, and fails."""
        if self._over:
            raise EnvironmentFailure("a step after the end")
        self._over = True
        answers = await self._runner.answers(self._problem, action, self._problem.tests)
        passes = await self._runner.agreeing(self._problem, self._problem.tests, answers)
        text = told(passes, unrun=sum(not answer.ran for answer in answers))
        return Observation(text=text, commands=(), won=all(passes), done=True)

    def close(self) -> None:
        """Nothing to do: the sandbox belongs to the service."""


class LoneExamination(Examination):
    """An episode with its own sandbox, from the reset to the verdict."""

    def __init__(self, problem: Problem, execution: ExecutionConfig) -> None:
        super().__init__(problem, Runner(execution))
        self._execution, self._closed = execution, False

    async def reset(self) -> Observation:
        if self._closed:
            self._runner, self._closed = Runner(self._execution), False
        return await super().reset()

    async def step(self, action: str) -> Observation:
        try:
            return await super().step(action)
        finally:
            self._closed = True
            await self._runner.close()


class CodingService:
    """`rla.envs.protocols.Service`: one sandbox for all episodes of a stage."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def make(self, task: Task) -> AwaitedEnvironment:
        return Examination(problem_of(task.payload), self._runner)

    async def close(self) -> None:
        await self._runner.close()
