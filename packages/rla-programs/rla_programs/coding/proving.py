"""Whether a changed problem may be played: proven by running programs, before the task becomes pending.

    1  the reference solution passes the problem's own tests
    2  independent solutions agree with it on further inputs, which are not in the tests
         relative   the expected values come from a function of ours that shares no text with the solution
         rewrite    programs of the language model, written from the statement alone, that pass the tests; at least one
                    has a different text, and all of them must agree
    3  the tests tell a wrong program, which does answer, from the right ones
         relative   the plausible mistakes of the template       rewrite   the requested programs that fail

Outputs that a model has written are not trusted: they are accepted if the reference and an independent solution agree
with the tests and with each other.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Ask, PolicyPrompt, RejectedEdit
from rla.seeds import derive
from rla.store.records import Task
from rla_programs.coding.builtin.recall import Entry, entry_of
from rla_programs.coding.data.checkers import CheckerKind, agrees
from rla_programs.coding.data.problems import Problem, Test, problem_of, question
from rla_programs.coding.editing import RELATIVE, further_inputs
from rla_programs.coding.params import CodingParams
from rla_programs.coding.running import Answer, Runner

UNPROVEN = "no language model is there to write independent solutions"


class CodingProof:
    """`rla.envs.protocols.Proof`. `ask` and `prompt`: request programs for a statement, and parse them."""

    def __init__(self, runner: Runner, config: CodingParams, *, prompt: PolicyPrompt, ask: Ask | None) -> None:
        self._runner, self._config = runner, config
        self._prompt, self._ask = prompt, ask

    async def __call__(self, task: Task) -> str:
        """The first condition that does not hold; empty if all hold."""
        problem, edit = problem_of(task.payload), json.loads(task.edit or "{}")
        try:
            if problem.solution is None or not all(await self._passes(problem, problem.solution)):
                return "the reference solution fails a test of its own problem"
            if RELATIVE in edit:
                entry = entry_of(problem)
                return UNPROVEN if entry is None else await self._relative(problem, entry, seed=task.task_id)
            return await self._rewritten(problem, further_inputs(problem, edit))
        except RejectedEdit as refused:
            return str(refused)
        except EnvironmentFailure as failure:
            return f"it could not be proven: {failure}"

    async def close(self) -> None:
        await self._runner.close()

    async def _relative(self, problem: Problem, entry: Entry, *, seed: str) -> str:
        further = entry.drawn(random.Random(derive("proof", seed)), count=self._config.inputs)
        if not all(await self._runner.passes(problem, str(problem.solution), further)):
            return "the reference solution and the expected values disagree on further inputs"
        return await self._told(problem, entry.wrong())

    async def _rewritten(self, problem: Problem, further: Sequence[Test]) -> str:
        if self._ask is None:
            return UNPROVEN
        replies = await self._ask(self._prompt.opening(question(problem), ()), self._config.solvers)
        read = dict.fromkeys(program for reply in replies if (program := self._prompt.parse(reply, ())) is not None)
        programs = [program for program in read if program.strip() != str(problem.solution).strip()]
        verdicts = await self._runner.table(problem, programs, problem.tests)
        right = [program for program, row in zip(programs, verdicts, strict=True) if all(row)]
        if not right:
            return f"none of {len(programs)} independent programs passes the tests"
        reference = await self._runner.answers(problem, str(problem.solution), further)
        if not all(answer.ended for answer in reference):
            return "the reference solution fails on a further input"
        for program in right:
            if not _same(problem, reference, await self._runner.answers(problem, program, further)):
                return "an independent program that passes the tests disagrees with the reference on further inputs"
        return await self._told(problem, [program for program in programs if program not in right])

    async def _told(self, problem: Problem, wrong: Sequence[str]) -> str:
        """An error unless one of the `wrong` programs answers, and fails."""
        for program in wrong:
            answers = await self._runner.answers(problem, program, problem.tests)
            passes = await self._runner.agreeing(problem, problem.tests, answers)
            if any(answer.ended for answer in answers) and not all(passes):
                return ""
        return "the tests tell no wrong program from the right ones"

    async def _passes(self, problem: Problem, program: str) -> list[bool]:
        return await self._runner.passes(problem, program, problem.tests)


def _same(problem: Problem, reference: Sequence[Answer], other: Sequence[Answer]) -> bool:
    """Whether the answers agree by the problem's checker, which must not be a program here."""
    assert problem.checker.kind is not CheckerKind.PROGRAM
    return all(b.ended and agrees(problem.checker, a.value, b.value) for a, b in zip(reference, other, strict=True))
