"""Shards to damage, and ways to do it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rla.store.atomic import WHOLE, Slice
from rla.store.manifest import read_json, sealed
from rla.store.shards import Origin, ShardWriter
from tests.unit.builders import task

OURS, OTHER, THIRD = (Origin(config=name, inputs={"0": "d1"}, seed=0) for name in ("c1", "c2", "c3"))
GROUPS = 4


def rows_of(origin: Origin, group: int) -> list[dict[str, Any]]:
    """What an origin makes of a group: two rows that nothing else makes."""
    return [task(f"{origin.config}-{group}-{number}").row() for number in range(2)]


def names_of(origin: Origin) -> list[str]:
    """The ids of all rows of a whole shard, in order."""
    return [row["task_id"] for group in range(GROUPS) for row in rows_of(origin, group)]


def grow(folder: Path, origin: Origin = OURS, *, groups: int = GROUPS, **options: Any) -> ShardWriter:
    """Write the first groups that are missing, and finish once all are there; the writer."""
    writer = ShardWriter(folder, "tasks", origin, **options)
    part = options.get("part", WHOLE)
    if not writer.complete:
        mine = [group for group in range(GROUPS) if part.takes(group)]
        for group in [group for group in mine if group not in writer.done][:groups]:
            writer.write(group, rows_of(origin, group))
        if set(mine) == set(writer.done):
            writer.finish({"tasks": 2 * len(mine)})
    return writer


def slice_of_two(index: int) -> Slice:
    return Slice(index=index, count=2)


def worker_of_two(index: int) -> Slice:
    """The slice, as the call that divides the work starts it."""
    return Slice(index=index, count=2, started=True)


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Turn one bit of a file; `position` counts around."""
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1 << bit
    path.write_bytes(bytes(content))


def edit_record(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """A manifest as a program would have written it that has something else to say."""
    path.write_text(json.dumps(sealed(change(read_json(path)))))


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
