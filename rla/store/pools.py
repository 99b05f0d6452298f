"""Tasks as rows of pools and of candidates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.reading import read_rows, stream_rows
from rla.store.records import Task

TASK_FIELDS = tuple(entry.name for entry in fields(Task))


def read_tasks(folder: Path, kind: str = "tasks") -> list[Task]:
    """The tasks of a pool or candidates shard; UserError when there is none."""
    rows = read_rows(folder, kind)
    if kind == "tasks" and not rows:
        raise UserError(f"{folder}: the task pool is empty; make one with `rla make-tasks`")
    if kind == "candidates":
        rows = [row for row in rows if row["valid"]]
    return list(map(as_task, rows))


def read_candidates(folder: Path) -> list[Task]:
    """Valid candidates, or none where the folder does not exist (the first iteration has none)."""
    return read_tasks(folder, "candidates") if folder.exists() else []


def tasks_by_id(folder: Path, kind: str, wanted: Collection[str]) -> dict[str, Task]:
    """The tasks among `wanted` by id: a pool may hold thousands, each of tens of kilobytes."""
    names = ["task_id", *(name for name in TASK_FIELDS if name != "task_id")]
    rows = stream_rows(folder, kind, names, keys=wanted)
    return {row["task_id"]: as_task(row) for row in rows}


def as_task(row: Mapping[str, Any]) -> Task:
    """The task of a row of a pool or of candidates, which may have more columns."""
    return Task(**{name: row[name] for name in TASK_FIELDS})
