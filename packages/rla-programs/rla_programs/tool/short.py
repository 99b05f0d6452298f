"""Calls for small models: a line that starts with `>>> ` begins a program, which continues to the next such line.

    I compute it.
    >>> x = 6 * 7
    print(x)

The program ends with the reply, so text can only precede the first call. A reply without calls is its own answer. The
chat template is not told of tools, and results are in turns of the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rla.text import after_thinking
from rla_programs.tool.calls import MOST_CALLS, TOO_MANY, TOOL, Malformed, ToolCall, Turn

MARK = ">>>"
EMPTY = f"There is no program after {MARK}: write it on the same line."


class ShortFormat:
    """`CallFormat` of models without a template for tools."""

    schemas: tuple[Mapping[str, Any], ...] = ()
    role = "user"

    def parse(self, reply: str) -> Turn:
        reply = after_thinking(reply)
        starts = list(_call_starts(reply))
        if not starts:
            return Turn(text=reply)
        ends = [start - 1 for start in starts[1:]] + [len(reply)]
        codes = [reply[start + len(MARK) : end].removeprefix(" ") for start, end in zip(starts, ends, strict=True)]
        calls: list[ToolCall | Malformed] = [_call_of_code(code) for code in codes[:MOST_CALLS]]
        if len(codes) > MOST_CALLS:
            calls.append(Malformed(reason=TOO_MANY))
        return Turn(text=reply[: max(0, starts[0] - 1)], calls=tuple(calls))

    def render(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Raises ValueError for a call that `parse` would not give back."""
        codes = [str(call.arguments.get("code")) for call in calls]
        reply = "\n".join(([text] if text else []) + [f"{MARK} {code}" for code in codes])
        if self.parse(reply) != Turn(text=text, calls=tuple(calls)):
            raise ValueError(f"a program or a text has a line that starts with {MARK}, or a call is not of {TOOL}")
        return reply


def _call_starts(reply: str) -> Iterator[int]:
    """Positions of the lines that begin a call, including lines with the bare mark."""
    at = 0 if reply.startswith(MARK) else _next_line(reply, 0)
    while at >= 0:
        if reply[at + len(MARK) : at + len(MARK) + 1] in ("", " ", "\n", "\r"):
            yield at
        at = _next_line(reply, at)


def _next_line(reply: str, at: int) -> int:
    """The next line after `at` that starts with the mark, -1 if there is none."""
    found = reply.find(f"\n{MARK}", at)
    return found + 1 if found >= 0 else -1


def _call_of_code(code: str) -> ToolCall | Malformed:
    if not code.strip():
        return Malformed(reason=EMPTY)
    return ToolCall(name=TOOL, arguments={"code": code})
