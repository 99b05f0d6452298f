"""Counts of adaptation by direction and by kind of edit.

The kind of an edit is the names of what it changes, as the environment calls them, in alphabetical order and
joined by "+": `goal`, `move+remove`. The text is untrusted: whatever is not such an object is `unreadable`.
Where nothing was proposed it is `none`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

UNREADABLE = "unreadable"
NONE = "none"
Tally = dict[str, dict[str, dict[str, int]]]  # direction -> kind of edit -> name -> count


class Counted(NamedTuple):
    """One proposal, and what it counts as: {"proposed": True, "valid": False}."""

    direction: str | None
    edit: str | None
    marks: Mapping[str, bool]


def edit_kind(edit: str | None, fields: Collection[str]) -> str:
    """The kind of an edit, from its JSON text; `fields`: the names that edits of its environment may have."""
    if edit is None:
        return NONE
    try:
        read = json.loads(edit)
    except (ValueError, RecursionError):
        return UNREADABLE
    if not isinstance(read, dict) or not read or not set(read) <= set(fields):
        return UNREADABLE
    return "+".join(sorted(read))


def edit_tally(entries: Iterable[Counted], *, fields: Collection[str]) -> Tally:
    """How many entries have each mark, by direction and kind; kinds that did not occur are left out."""
    counts: Tally = {}
    for entry in entries:
        cell = counts.setdefault(str(entry.direction), {}).setdefault(edit_kind(entry.edit, fields), {})
        for name, marked in entry.marks.items():
            cell[name] = cell.get(name, 0) + marked
    return {direction: dict(sorted(kinds.items())) for direction, kinds in sorted(counts.items())}


def added(tallies: Iterable[Tally]) -> Tally:
    """The sum of several tallies."""
    total: Tally = {}
    for found in tallies:
        for direction, kinds in found.items():
            for kind, counts in kinds.items():
                cell = total.setdefault(direction, {}).setdefault(kind, {})
                for name, count in counts.items():
                    cell[name] = cell.get(name, 0) + count
    return {direction: dict(sorted(kinds.items())) for direction, kinds in sorted(total.items())}
