"""Prompts that ask the policy for a program, and the parsers of its replies.

`plain`: the question alone, the reply is the program; for small models trained on it. `published`: instructions for
chat models, which reason first; the program is the last closed block fenced as python. One question, one reply: there
are no later turns. Replies are untrusted: parsed in linear time, and refused beyond `LONGEST_PROGRAM`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rla.envs.authoring import is_text
from rla.envs.chat_prompts import user
from rla.envs.protocols import Message
from rla.text import after_thinking
from rla_programs.coding.fences import fenced_blocks, lines_of

LONGEST_PROGRAM = 65_536
LONGEST_REPLY = 200_000
TAGS = frozenset({"python", "python3", "py"})


class _SingleTurn:
    """A program is one action: an episode has no second question."""

    preamble: ClassVar[str] = ""

    def opening(self, observation: str, commands: Sequence[str]) -> list[Message]:
        return [user(f"{self.preamble}{observation.strip()}")]

    def turn(self, observation: str, commands: Sequence[str], instruction: str) -> str:
        return observation.strip()

    def window(
        self, history: Sequence[tuple[str, str]], observation: str, commands: Sequence[str], instruction: str
    ) -> list[Message]:
        return self.opening(observation, commands)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainProgramPrompt(_SingleTurn):
    """The user turn is the question (`rla_programs.coding.data.problems.question`), the reply is the program."""

    def parse(self, reply: str, commands: Sequence[str]) -> str | None:
        """The reply without trailing white space; None if it is empty, too long or not text."""
        return _program(after_thinking(reply))

    def render(self, action: str, commands: Sequence[str]) -> str:
        return action.rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedProgramPrompt(_SingleTurn):
    """Reasoning, then one fenced block."""

    preamble: ClassVar[str] = (
        "Solve the programming problem below in Python 3. Think step by step first, then write the whole program. "
        "Unless the problem asks for a function, the program reads its input with input() and writes its answer with "
        "print(). It has to compute the answer from the input: examples in the problem are not the only inputs it "
        "will get. End your reply with the program as one block between ```python and ```.\n\nProblem:\n"
    )

    def parse(self, reply: str, commands: Sequence[str]) -> str | None:
        """The last closed python block; None if there is none, or if it is empty, too long or not text."""
        reply = after_thinking(reply)
        if len(reply) > LONGEST_REPLY:
            return None
        found = [block.text for block in fenced_blocks(lines_of(reply)) if block.tag in TAGS]
        return _program(found[-1]) if found else None

    def render(self, action: str, commands: Sequence[str]) -> str:
        return f"```python\n{action.rstrip()}\n```"


def _program(text: str) -> str | None:
    text = text.rstrip()
    return text if text.strip() and is_text(text, longest=LONGEST_PROGRAM) else None
