"""Markdown as the site and repository hosts show it: pages, headings, tables, and docstrings as paragraphs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

CODE_SPAN = re.compile(r"(`[^`]*`)")


def page(heading: str, *blocks: str) -> str:
    """A whole page; empty blocks are left out."""
    return "\n\n".join([f"# {heading}", *(block.strip("\n") for block in blocks if block.strip())]) + "\n"


def link(text: str, target: str) -> str:
    return f"[{text}]({target})"


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def fenced(text: str, language: str = "python") -> str:
    return f"```{language}\n{text.strip()}\n```"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown already; line breaks in them become spaces."""
    lines = [row(head), "|" + "---|" * len(head)]
    return "\n".join([*lines, *(row(cells) for cells in rows)])


def row(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {' '.join(cell.split())} " if cell else " " for cell in cells) + "|"


def listed(values: Iterable[object]) -> str:
    """`a`, `b`"""
    return ", ".join(code(str(value)) for value in values)


def escaped(text: str) -> str:
    """Plain text as Markdown that shows it: stars and tags are no markup outside of code spans."""
    parts = CODE_SPAN.split(text)
    parts[::2] = [re.sub(r"([*])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    return "".join(parts)


def cell(text: str) -> str:
    """Plain text for a table cell."""
    return escaped(text).replace("|", "&#124;")


def prose(docstring: str | None) -> str:
    """A docstring as Markdown: indented lines become code, tables stay tables, all else paragraphs."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(docstring or ""))
    return "\n\n".join(block(lines) for lines in blocks if lines.strip())


def block(text: str) -> str:
    lines = text.splitlines()
    if all(line.startswith("    ") for line in lines):
        return fenced(inspect.cleandoc("\n" + text), "text")
    if all(line.startswith("|") for line in lines):
        return "\n".join(line.replace("<", "&lt;") for line in lines)
    shown = [f"- {line[2:]}" if line.startswith("- ") else line for line in lines]
    return "\n".join(escaped(line) for line in shown)
