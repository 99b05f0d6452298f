"""What several stages do alike: read pools and models, name the origin of a shard, run a generator to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rla.config import config_digest
from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.store.layout import PATHS
from rla.store.records import Task
from rla.store.shards import Origin, digest, read_rows, stream_rows

TASK_FIELDS = tuple(entry.name for entry in fields(Task))


def read_tasks(folder: Path, kind: str = "tasks") -> list[Task]:
    """The tasks of a pool or candidates shard; UserError when there is none."""
    rows = read_rows(folder, kind)
    if kind == "tasks" and not rows:
        raise UserError(f"{folder}: the task pool is empty; make one with `rla make-tasks`")
    if kind == "candidates":
        rows = [row for row in rows if row["valid"]]
    return list(map(as_task, rows))


def tasks_of(folder: Path, kind: str, wanted: Collection[str]) -> dict[str, Task]:
    """The tasks among `wanted` by id: a pool may hold thousands, each of tens of kilobytes."""
    names = ["task_id", *(name for name in TASK_FIELDS if name != "task_id")]
    rows = stream_rows(folder, kind, names, keys=wanted)
    return {row["task_id"]: as_task(row) for row in rows}


def as_task(row: Mapping[str, Any]) -> Task:
    """The task of a row of a pool or of candidates, which may have more columns."""
    return Task(**{name: row[name] for name in TASK_FIELDS})


def read_candidates(folder: Path) -> list[Task]:
    """Valid candidates, or none where the folder does not exist (the first iteration has none)."""
    return read_tasks(folder, "candidates") if folder.exists() else []


def origin(ctx: StageContext, inputs: Sequence[Path], *, sections: Sequence[str] = ()) -> Origin:
    """The origin of this stage's outputs: digests of its sections of the config and of its inputs.

    Inputs are named by their role, not by their path, so that a run folder may be moved.
    """
    wanted = tuple(sections) or ctx.spec.sections
    names = {str(index): digest(path) for index, path in enumerate(inputs) if path.exists()}
    looped = any("{i}" in PATHS[artifact] for _, artifact in ctx.spec.writes)
    config = config_digest(ctx.config, wanted) + (f"/{ctx.iteration}" if looped else "")
    return Origin(config=config, inputs=names, seed=ctx.config.seed)


def model_folder(path: Path) -> Path:
    """The Hugging Face folder inside a checkpoint, or the path itself where it is a plain model folder."""
    return path / "model" if (path / "model").is_dir() else path


def run_async(main: Coroutine[Any, Any, None]) -> None:
    """Run the scheduler; a single error inside its task group is raised as itself, so that its message stands alone."""
    try:
        asyncio.run(main)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


def check_failures(folder: Path, failed: int, total: int, limit: float, *, what: str = "episodes") -> None:
    """Fail loudly when more than a stated share failed."""
    if total and failed / total > limit:
        raise UserError(
            f"{folder}: {failed} of {total} {what} failed, more than rollout.max_failed_share = {limit}; "
            "mend the cause and call the stage again: it plays those groups anew"
        )
