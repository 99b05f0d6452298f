"""Tasks as rows of pools and of candidates."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.reading import read_table, stream_rows
from rla.store.records import Status, Task
from rla.store.schema import check_table

DEEPEST = 200  # levels of a payload
TASK_FIELDS = tuple(entry.name for entry in fields(Task))


def read_tasks(folder: Path, kind: str = "tasks") -> list[Task]:
    """The tasks of a pool or candidates shard, every value checked. UserError if there are none."""
    table = read_table(folder, kind)
    try:
        check_table(kind, table)
    except UserError as error:
        raise UserError(f"{folder}: {error}; make the pool again") from None
    rows = table.to_pylist()
    if kind == "tasks" and not rows:
        raise UserError(f"{folder}: the task pool is empty; make one with `rla make-tasks`")
    if kind == "candidates":
        rows = [row for row in rows if row["valid"]]
    names = [row["task_id"] for row in rows]
    if len(names) != len(set(names)):
        raise UserError(f"{folder}: a task is there twice; make the pool again")
    return list(map(as_task, rows))


def read_candidates(folder: Path) -> list[Task]:
    """Valid candidates; an empty list if the folder does not exist, as in the first iteration."""
    return read_tasks(folder, "candidates") if folder.exists() else []


def tasks_by_id(folder: Path, kind: str, wanted: Collection[str]) -> dict[str, Task]:
    """The tasks among `wanted` by id: a pool may hold thousands, each of tens of kilobytes."""
    names = ["task_id", *(name for name in TASK_FIELDS if name != "task_id")]
    rows = stream_rows(folder, kind, names, keys=wanted)
    return {row["task_id"]: as_task(row) for row in rows}


def as_task(row: Mapping[str, Any]) -> Task:
    """The task of a row of a pool or of candidates, which may have more columns.

    UserError for a status that no task has, and for JSON that is nested too deeply.
    """
    task = Task(**{name: row[name] for name in TASK_FIELDS})
    if None in (task.task_id, task.payload, task.status) or task.status not in set(Status):
        raise UserError(f"task {task.task_id}: no payload, or a status that is none of {', '.join(Status)}")
    for name, text in (("payload", task.payload), ("edit", task.edit or "")):
        if nested_too_deeply(text):
            raise UserError(f"task {task.task_id}: its {name} is no JSON, or nested deeper than {DEEPEST} levels")
    return task


def nested_too_deeply(text: str) -> bool:
    """Whether a JSON text is more deeply nested than any environment's, which reading would end in. Few are parsed."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    try:
        level = [json.loads(text)]
    except (ValueError, RecursionError):
        return True
    for _ in range(DEEPEST):
        level = [
            below
            for node in level
            if isinstance(node, dict | list)
            for below in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return False
    return True
