"""`make-tasks`: the pools of the training split and of the held-out splits, built in or from a data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.adaptation.pools import (
    made_pool,
    never_held_out,
    refuse_curated_evaluation,
    refuse_shared,
    told_missing,
)
from rla.envs.protocols import Exports, need
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pipeline import StageContext
from rla.pipeline.origins import origin
from rla.store.layout import artifact, held_out_root
from rla.store.shards import write_shard


def run(ctx: StageContext) -> dict[str, Any]:
    """Write all pools, or with `--split` one. Returns the counts."""
    ctx = with_options(ctx)
    only, config = ctx.options.get("split"), ctx.config.tasks
    wanted = [split for split in (config.train_split, *config.test_splits) if only in (None, split)]
    refuse_curated_evaluation(ctx, wanted)
    made = {split: made_pool(ctx, split) for split in wanted}
    places = {split: place_of(ctx, split)[1] for split in (config.train_split, *config.test_splits)}
    refuse_shared(ctx, {split: pool.tasks for split, pool in made.items()}, places=places)
    summary: dict[str, Any] = {}
    if missing := never_held_out({split: pool.tasks for split, pool in made.items()}, config):
        summary["not held out"] = ", ".join(missing)
        ctx.progress.note(told_missing(missing, config))
    for split, pool in made.items():
        option, folder = place_of(ctx, split)
        if not pool.tasks:
            raise UserError(f"{folder}: no task made for split {split!r}; check tasks.* in the params")
        rows = [task.row() for task in sorted(pool.tasks, key=lambda task: task.task_id)]
        made_from = origin(ctx, pool.inputs, also=pool.also)
        write_shard(folder, "tasks", rows, made_from, counts=pool.counts, overwrite=ctx.overwrite)
        summary[option] = f"{len(rows)} tasks in {folder}"
        if pool.curation:
            summary["curation"] = ", ".join(f"{count} {name}" for name, count in pool.curation.items())
        if ctx.options.get("export"):
            exporter = need(environment(ctx.config.env.name), Exports, "make-tasks --export")
            count = exporter.export_tasks(pool.tasks, Path(ctx.options["export"]))
            summary[f"{option} exported"] = f"{count} games in {ctx.options['export']}"
    return summary


def place_of(ctx: StageContext, split: str) -> tuple[str, Path]:
    """The name and folder of a pool. Further held-out splits have roots of their own."""
    config = ctx.config.tasks
    if not config.held_out(split):
        return "train", ctx.path("train")
    main = split == config.test_splits[0]
    if main or ("test" in ctx.paths and ctx.options.get("split") == split):
        return "test", ctx.path("test")
    return f"test {split}", artifact(held_out_root(ctx.run, config.test_splits, split), "test_tasks", 0)


def with_options(ctx: StageContext) -> StageContext:
    """The call with `--from`, `--limit` and `--split` as parameters, which the pool's origin records. A split whose
    name begins with valid, test or eval is held out.
    """
    tasks = ctx.config.tasks
    if ctx.options.get("from"):
        tasks = replace(tasks, source="files", path=str(ctx.options["from"]))
    if ctx.options.get("limit"):
        tasks = replace(tasks, limit=int(ctx.options["limit"]))
    only = ctx.options.get("split")
    if only and only not in (tasks.train_split, *tasks.test_splits):
        held_out = str(only).startswith(("valid", "test", "eval"))
        tasks = replace(tasks, test_splits=(str(only),)) if held_out else replace(tasks, train_split=only)
    return replace(ctx, config=replace(ctx.config, tasks=tasks))
