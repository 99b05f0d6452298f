"""`make-tasks`: the training and the held-out pool, from built-in scenes or from a data folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.config.sections import TasksConfig
from rla.envs.registry import setting
from rla.errors import UserError
from rla.pipeline.common import origin
from rla.pipeline.context import StageContext
from rla.store.records import Task
from rla.store.shards import write_shard


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes both pools, or with `--from/--split` only the one of that split. Returns the counts."""
    ctx = with_options(ctx)
    only = ctx.options.get("split")
    config = ctx.config.tasks
    splits = {"train": config.train_split, "test": config.test_split}
    made = {option: tasks_of(ctx, split) for option, split in splits.items() if not only or split == only}
    summary: dict[str, Any] = {}
    for option, tasks in made.items():
        folder = ctx.path(option)
        if not tasks:
            raise UserError(f"{folder}: no task made for split {splits[option]!r}; check tasks.* in the params")
        rows = [task.row() for task in sorted(tasks, key=lambda task: task.task_id)]
        write_shard(
            folder,
            "tasks",
            rows,
            origin(ctx, []),
            counts={"scenes": len({t.scene for t in tasks})},
            overwrite=ctx.overwrite,
        )
        summary[option] = f"{len(rows)} tasks in {folder}"
        if ctx.options.get("export"):
            count = setting(ctx.config.env.name).export_tasks(tasks, Path(ctx.options["export"]))
            summary[f"{option} exported"] = f"{count} games in {ctx.options['export']}"
    return summary


def with_options(ctx: StageContext) -> StageContext:
    """`--from`, `--limit` and `--split` are short for params, so that the pool's origin records them.

    A split whose name begins with valid, test or eval is held out. ALFWorld's own held-out split is `valid_seen`.
    """
    tasks = ctx.config.tasks
    if ctx.options.get("from"):
        tasks = replace(tasks, source=setting(ctx.config.env.name).imported, path=str(ctx.options["from"]))
    if ctx.options.get("limit"):
        tasks = replace(tasks, limit=int(ctx.options["limit"]))
    if tasks.source == "alfworld" and tasks.test_split == TasksConfig().test_split:
        tasks = replace(tasks, test_split="valid_seen")
    only = ctx.options.get("split")
    if only and only not in (tasks.train_split, tasks.test_split):
        held_out = str(only).startswith(("valid", "test", "eval"))
        tasks = replace(tasks, test_split=only) if held_out else replace(tasks, train_split=only)
    return replace(ctx, config=replace(ctx.config, tasks=tasks))


def tasks_of(ctx: StageContext, split: str) -> list[Task]:
    config = ctx.config.tasks
    environment = setting(ctx.config.env.name)
    if config.source == "builtin":
        return environment.make_tasks(config, seed=ctx.config.seed, split=split, env=ctx.config.env)
    return environment.import_tasks(
        Path(config.path or ""),
        split=split,
        limit=config.limit,
        env=ctx.config.env,
        held_out=split == config.test_split,
        tell=ctx.progress.note,
    )
