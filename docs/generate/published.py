"""The table of docs/explain/paper.md: every hyperparameter by paper, published code and params file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from docs.generate.markdown import table
from rla.config import resolved
from rla.envs.registry import load_config

TOP = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("published.yaml")
PAGE = TOP / "docs/explain/paper.md"
BEGIN = "<!-- written by make -f tests/bench/Makefile docs-tables: -->"
END = "<!-- until here -->"
COLUMNS = ("", "parameter", "paper", "published code", "here")
NOT_STATED = "not stated"


def with_tables(page: str) -> str:
    """The page, with the tables of now between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE}: the marks {BEGIN} and {END} are not both there")
    return f"{before}{begin}\n\n{tables()}\n\n{end}{after}"


def tables() -> str:
    parts = []
    for part in yaml.safe_load(SOURCE.read_text()):
        values = resolved(load_config(TOP / part["params"]))
        heading = f"### {part['title']} (`{part['params']}`)"
        parts.append(f"{heading}\n\n{table(COLUMNS, list(rows(part['rows'], values)))}")
    return "\n\n".join(parts)


def rows(entries: list[Mapping[str, Any]], values: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Raises KeyError for a key that does not exist, ValueError for an empty cell, for a value of the paper without the
    place that says so, and for a difference without a reason.
    """
    for entry in entries:
        keys = entry.get("keys") or ([entry["key"]] if "key" in entry else [])
        found = entry["ours"] if "ours" in entry else ", ".join(shown(value_at(values, key)) for key in keys)
        ours, paper, code = (shown(value).strip() for value in (found, entry.get("paper"), entry.get("code")))
        flaw = flaw_of(ours, paper, code, at=str(entry.get("at", "")).strip(), why=str(entry.get("why", "")).strip())
        if flaw:
            raise ValueError(f"{SOURCE.name}: the row {entry['name']!r} {flaw}")
        why = f" ({entry['why']})" if "why" in entry else ""
        names = ", ".join(f"`{key}`" for key in keys)
        yield entry["name"], names, f"{paper} [{entry['at']}]" if entry.get("at") else paper, code, f"{ours}{why}"


def flaw_of(ours: str, paper: str, code: str, *, at: str, why: str) -> str:
    """What a row lacks; empty if it is complete."""
    empty = [name for name, cell in (("paper", paper), ("code", code), ("ours", ours)) if not cell]
    if empty:
        return f"has an empty cell: {', '.join(empty)}; write {NOT_STATED!r} if the source says nothing"
    silent = bare(paper) == NOT_STATED
    if silent == bool(at):
        return "names a place, but the paper says nothing" if silent else "does not name the place in the paper: `at`"
    if bare(ours) != bare(code if silent else paper) and not why:
        return f"differs from the {'code' if silent else 'paper'} without a reason: `why`"
    return ""


def bare(cell: str) -> str:
    """The value without a remark in parentheses and without the owner of a model."""
    return cell.partition(" (")[0].removeprefix("Qwen/")


def value_at(values: Mapping[str, Any], key: str) -> Any:
    found: Any = values
    for name in key.split("."):
        found = found[name]
    return found


def shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
