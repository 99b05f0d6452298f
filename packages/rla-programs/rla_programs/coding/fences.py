"""Fenced blocks in untrusted replies, in time linear in the reply: no pattern that could backtrack.

A block opens with a line of three or more backticks and an optional tag, and closes with a line of at least as many
backticks only. A block that never closes does not count.
"""

from __future__ import annotations

from typing import NamedTuple

FENCE = "```"


class FencedBlock(NamedTuple):
    """A closed block: its lower-case tag, its text without the fences, and its lines [start, end)."""

    tag: str
    text: str
    start: int
    end: int


def lines_of(reply: str) -> list[str]:
    """Lines split at line feeds only: a program may contain other characters that end a line elsewhere."""
    return reply.replace("\r\n", "\n").split("\n")


def fenced_blocks(lines: list[str]) -> list[FencedBlock]:
    """All closed blocks, in order."""
    found: list[FencedBlock] = []
    start, ticks, tag = -1, 0, ""
    for index, line in enumerate(lines):
        stripped = line.strip()
        if not stripped.startswith(FENCE):
            continue
        rest = stripped.lstrip("`")
        count = len(stripped) - len(rest)
        if start < 0 and "`" not in rest:
            start, ticks, tag = index, count, rest.strip().lower()
        elif start >= 0 and not rest and count >= ticks:
            found.append(FencedBlock(tag, "\n".join(lines[start + 1 : index]), start, index + 1))
            start = -1
    return found
