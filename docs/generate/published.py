"""The table of docs/explain/paper.md: every hyperparameter by paper, published code and params file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from docs.generate.markdown import table
from rla.config import resolved
from rla.envs.configured import load_config

TOP = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("published.yaml")
PAGE = TOP / "docs/explain/paper.md"
BEGIN = "<!-- written by make docs-reference: -->"
END = "<!-- until here -->"
COLUMNS = ("", "parameter", "paper", "published code", "here")


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
    """Raises KeyError for a key that there is not."""
    for entry in entries:
        keys = entry.get("keys") or ([entry["key"]] if "key" in entry else [])
        found = entry["ours"] if "ours" in entry else ", ".join(shown(value_at(values, key)) for key in keys)
        why = f" ({entry['why']})" if "why" in entry else ""
        names = ", ".join(f"`{key}`" for key in keys)
        yield (
            entry["name"],
            names,
            shown(entry.get("paper", "")),
            shown(entry.get("code", "")),
            f"{shown(found)}{why}",
        )


def value_at(values: Mapping[str, Any], key: str) -> Any:
    found: Any = values
    for name in key.split("."):
        found = found[name]
    return found


def shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
