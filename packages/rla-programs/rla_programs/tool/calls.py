"""The tool calls of a reply. A format parses the calls of a reply, and writes them.

A reply with calls continues with their results; one without is the final answer. A call that cannot be parsed is kept
as a `Malformed`, because its place and its fault are reported to the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

TOOL = "code_interpreter"  # the one tool, by its published name
MOST_CALLS = 64  # calls of one reply that are parsed
TOO_MANY = f"The reply makes more than {MOST_CALLS} calls: the others were not read."
SCHEMA: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "Run a Python program and read what it prints. Nothing is kept from one call to the next.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The program."}},
            "required": ["code"],
        },
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A parsed call. `arguments` is whatever JSON object the model wrote, not validated yet."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A call that could not be parsed; `reason` is one sentence that the model can act on."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A parsed reply: `text` is everything outside of calls, `calls` are in the order of the reply."""

    text: str
    calls: tuple[ToolCall | Malformed, ...] = ()


class CallFormat(Protocol):
    """The syntax of calls. `schemas`: the tools for the chat template; empty if it is given none.

    `role`: of the turn with the results, `tool` or `user`.
    """

    schemas: tuple[Mapping[str, Any], ...]
    role: str

    def parse(self, reply: str) -> Turn:
        """Parse the part after the thoughts of any text, in linear time."""
        ...

    def render(self, text: str, calls: Sequence[ToolCall]) -> str:
        """The reply with `text` first and then the calls; `parse` gives both back."""
        ...


def turn_of(
    reply: str,
    start: re.Pattern[str],
    read: Callable[[str, re.Match[str]], tuple[ToolCall | Malformed, int]],
    *,
    gap: int,
) -> Turn:
    """The turn of a reply whose calls begin with `start`. `read`: parses a call, and returns the position after it.
    `gap`: the number of line ends that templates put before the first call, which do not belong to the text.
    """
    pieces, calls, at = list[str](), list[ToolCall | Malformed](), 0
    while found := start.search(reply, at):
        pieces.append(reply[at : found.start()])
        if len(calls) == MOST_CALLS:
            calls.append(Malformed(reason=TOO_MANY))
            at = len(reply)
            break
        call, at = read(reply, found)
        calls.append(call)
    if not calls:
        return Turn(text=reply)
    before, *others = [*pieces, reply[at:]]
    for _ in range(gap):
        before = before.removesuffix("\n")
    after = [piece.strip("\n") for piece in others if piece.strip()]
    return Turn(text="\n".join([before, *after] if before else after), calls=tuple(calls))
