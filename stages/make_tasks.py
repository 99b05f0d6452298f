"""`make-tasks`: the training and the held-out pool, of the environment's own tasks or of a data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.envs.protocols import Exports, Imports, need
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.pipeline.origins import origin
from rla.store.records import Task
from rla.store.shards import write_shard


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes both pools, or with `--from/--split` only the one of that split. Returns the counts."""
    ctx = with_options(ctx)
    only = ctx.options.get("split")
    config = ctx.config.tasks
    splits = {"train": config.train_split, "test": config.test_split}
    made = {option: made_tasks(ctx, split) for option, split in splits.items() if not only or split == only}
    summary: dict[str, Any] = {}
    for option, tasks in made.items():
        folder = ctx.path(option)
        if not tasks:
            raise UserError(f"{folder}: no task made for split {splits[option]!r}; check tasks.* in the params")
        rows = [task.row() for task in sorted(tasks, key=lambda task: task.task_id)]
        counts = {"scenes": len({t.scene for t in tasks})}
        write_shard(folder, "tasks", rows, origin(ctx, []), counts=counts, overwrite=ctx.overwrite)
        summary[option] = f"{len(rows)} tasks in {folder}"
        if ctx.options.get("export"):
            exporter = need(environment(ctx.config.env.name), Exports, "make-tasks --export")
            count = exporter.export_tasks(tasks, Path(ctx.options["export"]))
            summary[f"{option} exported"] = f"{count} games in {ctx.options['export']}"
    return summary


def with_options(ctx: StageContext) -> StageContext:
    """`--from`, `--limit` and `--split` are short for params, so that the pool's origin records them.

    A split whose name begins with valid, test or eval is held out.
    """
    tasks = ctx.config.tasks
    if ctx.options.get("from"):
        tasks = replace(tasks, source="files", path=str(ctx.options["from"]))
    if ctx.options.get("limit"):
        tasks = replace(tasks, limit=int(ctx.options["limit"]))
    only = ctx.options.get("split")
    if only and only not in (tasks.train_split, tasks.test_split):
        held_out = str(only).startswith(("valid", "test", "eval"))
        tasks = replace(tasks, test_split=only) if held_out else replace(tasks, train_split=only)
    return replace(ctx, config=replace(ctx.config, tasks=tasks))


def made_tasks(ctx: StageContext, split: str) -> list[Task]:
    """The tasks of a split, built in or imported."""
    chosen = environment(ctx.config.env.name)
    if ctx.config.tasks.source == "builtin":
        return chosen.tasks(ctx.config, split=split, seed=ctx.config.seed)
    return need(chosen, Imports, "make-tasks").import_tasks(ctx.config, split=split, tell=ctx.progress.note)
