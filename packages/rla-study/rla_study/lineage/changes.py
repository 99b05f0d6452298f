"""Accepted tasks next to their parents, with the differences marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

from rla.report.render import Section, safe
from rla.report.tables import percent
from rla.store.layout import artifact
from rla.store.manifest import is_complete
from rla.text import printable
from rla_study.lineage.lineages import Lineage, lineages

Mark = Literal["same", "gone", "new"]
MARKS: dict[Mark, str] = {"gone": "del", "new": "ins"}
MOST = 12  # changes shown on a page
WORDS = re.compile(r"\s+|[^\s]+")
LONGEST = 4000  # characters of an instruction that are compared


def accepted_tasks(run: Path) -> list[Section]:
    """The section of the report with the last accepted tasks of a run; none without a task pool."""
    known = is_complete(artifact(run, "train_tasks", 0))
    return [changes_section(_accepted_changes(run), most=MOST)] if known else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An accepted task. `parent`, `child`: pieces of both instructions in order, each with its mark."""

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


def _accepted_changes(run: Path) -> list[Change]:
    """Every accepted task of a run, the last first. Raises UserError if the run has no task pool."""
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
    """Both texts in pieces; pieces that only one text has are marked `gone` or `new`."""
    old, new = WORDS.findall(before[:LONGEST]), WORDS.findall(after[:LONGEST])
    sides: tuple[list[tuple[Mark, str]], list[tuple[Mark, str]]] = ([], [])
    for kind, start, end, other_start, other_end in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        same = kind == "equal"
        if end > start:
            sides[0].append(("same" if same else "gone", "".join(old[start:end])))
        if other_end > other_start:
            sides[1].append(("same" if same else "new", "".join(new[other_start:other_end])))
    return sides


def changes_section(changes: Sequence[Change], *, most: int) -> Section:
    """Parent and child of accepted tasks side by side, the latest `most`."""
    body = [part for change in changes[:most] for part in _change_html(change)]
    if len(changes) > most:
        body.append(f"<p>{len(changes) - most} earlier ones are shown by <code>rla lineage</code>.</p>")
    return Section(name="tasks", title="Accepted tasks", body=body)


def _change_html(change: Change) -> Iterator[str]:
    yield f"<article><h3>Iteration {change.iteration}: {safe(change.direction)}</h3>"
    yield '<div class="sides">'
    sides = [("parent", change.parent_id, change.parent, change.parent_accuracy)]
    sides.append(("child", change.child_id, change.child, change.child_accuracy))
    for who, name, pieces, accuracy in sides:
        yield f"<div><b>{who} {safe(name)}</b>, won {percent(accuracy)}"
        yield f'<div class="text">{"".join(piece(*one) for one in pieces)}</div></div>'
    yield "</div>"
    for label, said in (("edit", change.edit), ("critique", change.critique)):
        if said:
            yield f'<div class="text seen"><b>{label}</b> {safe(said)}</div>'
    yield "</article>"


def piece(mark: Mark, said: str) -> str:
    """A piece of an instruction. White space between words is kept."""
    shown = escape(printable(said))
    return f"<{MARKS[mark]}>{shown}</{MARKS[mark]}>" if mark in MARKS else shown
