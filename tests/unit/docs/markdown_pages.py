"""The pages of the documentation as tests read them: text, fenced blocks and code spans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[3]
DOCS = TOP / "docs"
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
NOT_RUN = re.compile(r"<!-- not run: \S.*-->\s*$")


class Block(NamedTuple):
    """A fenced block. `runs`: no comment above it says why it does not."""

    language: str
    text: str
    runs: bool


def pages() -> list[Path]:
    """Every page that people write, those of packages included, and the README."""
    return [TOP / "README.md", *sorted(DOCS.rglob("*.md")), *sorted(TOP.glob("packages/*/README.md"))]


def name_of(page: Path) -> str:
    return page.relative_to(TOP).as_posix()


def blocks(text: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        yield Block(found[2], found[3], runs=NOT_RUN.search(text[: found.start()]) is None)


def code_spans(text: str) -> list[str]:
    """What stands between backticks in running text."""
    return SPAN.findall(FENCE.sub("", text))
