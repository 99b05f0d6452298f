"""Whether a rewritten question has the answer that its writer claims: proven by programs, never by a model's word.

    ask       `solvers` programs of the language model, written from the question alone, without the answer
    run       each in the sandbox; a program that prints a constant and computes nothing does not count
    accept    if at least a share `agreement` of the requested programs print the claimed number, and at least two of
              these have different texts

A question that a family has made needs no proof: its answer is computed.
"""

from __future__ import annotations

import ast
import asyncio
from typing import Protocol

from rla.envs.chat_prompts import QUOTED, quoted, user
from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Ask
from rla.store.records import Task
from rla_programs.coding.prompts import PublishedProgramPrompt
from rla_programs.tool.answer_reading import number_in
from rla_programs.tool.autoprint import parsed
from rla_programs.tool.calls import TOOL, ToolCall
from rla_programs.tool.episode import Caller
from rla_programs.tool.questions import Question, question_of

WITNESSES = 2  # programs with different texts that have to agree, however few are requested
NOBODY = "no language model is there to write programs for the question"
ASKED = (
    "Write a Python 3 program that computes the answer to the question below and prints the number alone. It has to "
    "compute the answer, not to state it. Think first, then end your reply with the program as one block between "
    "```python and ```. "
) + QUOTED
COMPUTING = (ast.BinOp, ast.BoolOp, ast.Compare, ast.For, ast.While, ast.comprehension, ast.FunctionDef)


class ProgramRunner(Caller, Protocol):
    """A `Caller` that holds a sandbox (`rla_programs.tool.interpreter.PythonTool`)."""

    async def close(self) -> None: ...


class AnswerProof:
    """`rla.envs.protocols.Proof`. `caller` is closed with the proof."""

    def __init__(self, caller: ProgramRunner, *, ask: Ask | None, solvers: int, agreement: float) -> None:
        self._caller, self._ask = caller, ask
        self._solvers, self._agreement = solvers, agreement
        self._reader = PublishedProgramPrompt()

    async def __call__(self, task: Task) -> str:
        """The reason for refusing the question; empty if it is proven."""
        asked = question_of(task)
        if asked.family is not None:
            return ""
        if self._ask is None:
            return NOBODY
        messages = [user(f"{ASKED}\n\n{quoted({'Question': asked.text})}")]  # the question alone
        replies = await self._ask(messages, self._solvers)
        read = [self._reader.parse(reply, ()) for reply in replies]
        programs = [program for program in read if program is not None and computes(program)]
        try:
            printed = await asyncio.gather(*map(self._printed, programs))
        except EnvironmentFailure as failure:
            return f"it could not be proven: {failure}"
        return self._refusal(asked, programs, printed)

    async def close(self) -> None:
        await self._caller.close()

    def _refusal(self, asked: Question, programs: list[str], printed: list[str]) -> str:
        wanted = number_in(asked.answer)
        agreeing = [program for program, text in zip(programs, printed, strict=True) if number_in(text) == wanted]
        if len(agreeing) < self._agreement * self._solvers:
            return f"{len(agreeing)} of {self._solvers} programs print the claimed answer"
        if len({program.strip() for program in agreeing}) < WITNESSES:
            return "all programs that print the claimed answer are one and the same text"
        return ""

    async def _printed(self, program: str) -> str:
        result = await self._caller.call(ToolCall(name=TOOL, arguments={"code": program}))
        return result.text.strip() if result.status == "ok" else ""


def computes(program: str) -> bool:
    """Whether the program does more than print constants; it is parsed and not run."""
    tree = parsed(program)
    return tree is not None and any(_computing(node) for node in ast.walk(tree))


def _computing(node: ast.AST) -> bool:
    called = isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in ("print", "str"))
    return called or isinstance(node, COMPUTING)
