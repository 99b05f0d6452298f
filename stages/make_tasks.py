"""`make-tasks`: the pools of the training split and of the held-out splits, built in or from a data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.adaptation.selection import curated_pool, made_tasks, refuse_shared
from rla.errors import UserError
from rla.pipeline import StageContext
from rla.pipeline.origins import origin
from rla.store.layout import artifact, held_out_root
from rla.store.shards import write_shard


def run(ctx: StageContext) -> dict[str, Any]:
    """Write all pools, or with `--split` one. Returns the counts. With `--curate` no held-out task is chosen."""
    ctx = _with_options(ctx)
    only, config = ctx.options.get("split"), ctx.config.tasks
    episodes = Path(ctx.options["curate"]) if ctx.options.get("curate") else None
    wanted = [split for split in (config.train_split, *config.test_splits) if only in (None, split)]
    if episodes and all(map(config.held_out, wanted)):
        raise UserError(
            f"--curate chooses tasks for training, and {', '.join(wanted)} is held out; name no such --split"
        )
    made = {split: made_tasks(ctx, split) for split in wanted}
    curation: dict[str, int] = {}
    if episodes:
        made[config.train_split], curation = curated_pool(made[config.train_split], episodes)
    places = {split: _place_of(ctx, split)[1] for split in (config.train_split, *config.test_splits)}
    refuse_shared(ctx, made, places=places)
    summary: dict[str, Any] = {}
    for split, tasks in made.items():
        option, folder = _place_of(ctx, split)
        if not tasks:
            raise UserError(f"{folder}: no task made for split {split!r}; check tasks.* in the params")
        rows = [task.row() for task in sorted(tasks, key=lambda task: task.task_id)]
        # DVC follows the main held-out pool alone, so its origin names all of them.
        held_out = config.held_out(split)
        also = " ".join(config.test_splits) if held_out else "curated" if episodes else ""
        made_from = origin(ctx, [episodes] if episodes and not held_out else [], also=also)
        counts = {"scenes": len({task.scene for task in tasks}), **({} if held_out else curation)}
        write_shard(folder, "tasks", rows, made_from, counts=counts, overwrite=ctx.overwrite)
        summary[option] = f"{len(rows)} tasks in {folder}"
    if curation:
        summary["curation"] = ", ".join(f"{count} {name}" for name, count in curation.items())
    return summary


def _place_of(ctx: StageContext, split: str) -> tuple[str, Path]:
    """The name and folder of a pool. Further held-out splits have roots of their own."""
    config = ctx.config.tasks
    if not config.held_out(split):
        return "train", ctx.path("train")
    main = split == config.test_splits[0]
    if main or ("test" in ctx.paths and ctx.options.get("split") == split):
        return "test", ctx.path("test")
    return f"test {split}", artifact(held_out_root(ctx.run, config.test_splits, split), "test_tasks", 0)


def _with_options(ctx: StageContext) -> StageContext:
    """The call with `--from`, `--limit` and `--split` as parameters, which the pool's origin records. A split whose
    name begins with valid, test or eval is held out.
    """
    tasks = ctx.config.tasks
    if ctx.options.get("from"):
        tasks = replace(tasks, path=str(ctx.options["from"]))
    if ctx.options.get("limit"):
        tasks = replace(tasks, limit=int(ctx.options["limit"]))
    only = ctx.options.get("split")
    if only and only not in (tasks.train_split, *tasks.test_splits):
        held_out = str(only).startswith(("valid", "test", "eval"))
        tasks = replace(tasks, test_splits=(str(only),)) if held_out else replace(tasks, train_split=only)
    return replace(ctx, config=replace(ctx.config, tasks=tasks))
