"""Accepted tasks beside their parents, with what differs marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rla.report.lineage import Lineage, lineages

Mark = Literal["same", "gone", "new"]
WORDS = re.compile(r"\s+|[^\s]+")
LONGEST = 4000  # characters of an instruction that are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A task that was accepted. `parent`, `child`: pieces of both instructions in order, each with its mark."""

    iteration: int
    direction: str
    edit: str
    critique: str
    parent_id: str
    child_id: str
    parent: Sequence[tuple[Mark, str]]
    child: Sequence[tuple[Mark, str]]
    parent_accuracy: float | None
    child_accuracy: float | None


def accepted_changes(run: Path) -> list[Change]:
    """Every accepted task of a run, the last first. Raises UserError where the run has no task pool."""
    found = [change for entry in lineages(run).values() for change in changes_of(entry)]
    return sorted(found, key=lambda one: (-one.iteration, one.child_id))


def changes_of(entry: Lineage) -> Iterator[Change]:
    told: dict[str, str] = {entry.root["task_id"]: entry.root["instruction"]}
    told |= {version["task_id"]: version["instruction"] for version in entry.versions if version["valid"]}
    for version in entry.versions:
        verdict: Mapping[str, object] | None = version["verdict"]
        if verdict is None or not verdict["accepted"]:
            continue
        before, after = compared(told.get(version["parent_id"], ""), version["instruction"])
        yield Change(
            iteration=int(str(verdict["iteration"])),
            direction=version["direction"] or "",
            edit=version["edit"] or "",
            critique=version["critique"],
            parent_id=version["parent_id"],
            child_id=version["task_id"],
            parent=before,
            child=after,
            parent_accuracy=version["parent_accuracy"],
            child_accuracy=verdict["accuracy"],  # type: ignore[arg-type]
        )


def compared(before: str, after: str) -> tuple[list[tuple[Mark, str]], list[tuple[Mark, str]]]:
    """Both texts in pieces: what only one of them has is `gone` or `new`."""
    old, new = WORDS.findall(before[:LONGEST]), WORDS.findall(after[:LONGEST])
    sides: tuple[list[tuple[Mark, str]], list[tuple[Mark, str]]] = ([], [])
    for kind, start, end, other_start, other_end in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        same = kind == "equal"
        if end > start:
            sides[0].append(("same" if same else "gone", "".join(old[start:end])))
        if other_end > other_start:
            sides[1].append(("same" if same else "new", "".join(new[other_start:other_end])))
    return sides
