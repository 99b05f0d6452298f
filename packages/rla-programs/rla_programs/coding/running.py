"""Runs programs of a problem on its tests, and tells which of them pass.

A program passes a test if its run ended well and its answer agrees by the problem's checker. The CPU time limit is the
problem's. The wall clock limit is the wider one of `env.own.execution`, because on a busy machine a tight one would
decide verdicts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rla.envs.observation import EnvironmentFailure
from rla_programs.coding.data.checkers import CheckerKind, Json, agrees, checker_calls, checker_verdict
from rla_programs.coding.data.problems import Problem, StdioTest, Test, given, wanted
from rla_programs.execution import Call, ExitStatus, Job, Limits, Result, Sandbox, default_limits, make_sandbox
from rla_programs.execution.preload import with_prelude
from rla_programs.execution.records import ExecutionConfig

INTERPRETER_MB = 128  # address space for Python itself, on top of the problem's limit
SLEEP = 4.0  # the wall clock limit is at least this many times the CPU time


class Answer(NamedTuple):
    """A program's answer to an input; `ended`: whether its run ended well; `ran`: whether it began."""

    ended: bool
    value: Json
    ran: bool = True


class Runner:
    """Programs in one sandbox. Only one event loop may use it. Raises UserError if nothing can be run here."""

    def __init__(self, config: ExecutionConfig, sandbox: Sandbox | None = None) -> None:
        self._config = config
        self._sandbox = sandbox or make_sandbox(config)

    async def passes(self, problem: Problem, program: str, tests: Sequence[Test]) -> list[bool]:
        """For each test whether the program passes it. Raises EnvironmentFailure if the service failed."""
        answers = await self.answers(problem, program, tests)
        return await self.agreeing(problem, tests, answers)

    async def table(self, problem: Problem, programs: Sequence[str], tests: Sequence[Test]) -> list[list[bool]]:
        """[program][test]; equal programs are run once."""
        unique = list(dict.fromkeys(programs))
        rows = await asyncio.gather(*(self.passes(problem, program, tests) for program in unique))
        found = dict(zip(unique, rows, strict=True))
        return [list(found[program]) for program in programs]

    async def answers(self, problem: Problem, program: str, tests: Sequence[Test]) -> list[Answer]:
        """The program's answers to the inputs of `tests`. Raises EnvironmentFailure."""
        # Without the name in the program, a function that the prelude imports must not be called in its place.
        prelude = problem.prelude if (problem.function or "") in program else ""
        limits, program = self.limits(problem), with_prelude(prelude, program)
        if problem.function is None:
            job = Job(source=program, stdin=tuple(t.input for t in tests if isinstance(t, StdioTest)), limits=limits)
            return [_answer_of(result, result.stdout) for result in await self._run(job)]
        calls = tuple(Call(function=problem.function, arguments=tuple(given(test))) for test in tests)
        job = Job(source=program, calls=calls, limits=limits)
        return [_answer_of(result, result.value) for result in await self._run(job)]

    async def agreeing(self, problem: Problem, tests: Sequence[Test], answers: Sequence[Answer]) -> list[bool]:
        """For each test whether the answer is right. A checker program gets all answers in one job. Raises as
        `answers`.
        """
        checker = problem.checker
        if checker.kind is not CheckerKind.PROGRAM:
            return [a.ended and agrees(checker, wanted(t), a.value) for t, a in zip(tests, answers, strict=True)]
        asked = [(given(t), wanted(t), a.value) for t, a in zip(tests, answers, strict=True) if a.ended]
        calls = tuple(Call(function=call.function, arguments=call.arguments) for call in checker_calls(asked))
        said = iter(
            await self._run(Job(source=checker.program or "", calls=calls, limits=default_limits(self._config)))
        )
        return [
            a.ended and (found := next(said)).status is ExitStatus.OK and checker_verdict(found.value) for a in answers
        ]

    def limits(self, problem: Problem) -> Limits:
        """The problem's limits; the others come from the configuration."""
        return replace(
            default_limits(self._config),
            cpu_s=problem.time_limit_s,
            wall_s=max(self._config.wall_s, SLEEP * problem.time_limit_s),
            memory_mb=problem.memory_limit_mb + INTERPRETER_MB,
        )

    async def close(self) -> None:
        await self._sandbox.close()

    async def _run(self, job: Job) -> list[Result]:
        results = await self._sandbox.run(job) if job.size else []
        failed = next((result for result in results if result.status is ExitStatus.ERROR), None)
        if failed is not None:
            raise EnvironmentFailure(f"the sandbox failed: {failed.detail}")
        return results


def _answer_of(result: Result, value: Json) -> Answer:
    return Answer(result.status is ExitStatus.OK, value, result.status is not ExitStatus.SKIPPED)
