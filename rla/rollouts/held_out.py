"""The held-out splits of a run: each has a pool, rows and figures of its own, and one stage plays them all.

The main split lies where the only one lies in a run of one; every further split below a root of its own
(`rla.store.layout`), in folders of the same names.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rla.config.sections import Config
from rla.pipeline.context import StageContext
from rla.pipeline.origins import held_out_pool
from rla.store.layout import artifact, held_out_root
from rla.store.reading import read_rows
from rla.store.record import is_complete

ONE = ("tasks", "out", "metrics")  # options that name a folder of one split


def evaluated_splits(ctx: StageContext) -> list[str]:
    """The splits that a call of `evaluate` plays: all, or the main one alone where an option names a folder of one."""
    splits = ctx.config.tasks.test_splits
    return list(splits[:1] if any(name in ctx.paths for name in ONE) else splits)


def pool_of_split(ctx: StageContext, split: str) -> Path:
    """The pool that the option names, or that of the split, made where it is missing. Says if a named one trains."""
    named, trained = ctx.paths.get("tasks"), artifact(ctx.run, "train_tasks", 0)
    if named is None:
        return held_out_pool(ctx, split)
    if is_complete(named) and is_complete(trained):
        ids, known = ({row["task_id"] for row in read_rows(pool, "tasks", ["task_id"])} for pool in (named, trained))
        if shared := len(ids & known):
            ctx.progress.note(f"{named}: {shared} of {len(ids)} tasks are in the training pool {trained}")
    return named


def split_context(ctx: StageContext, split: str, *, pool: Path, policy: Path) -> StageContext:
    """The call of `evaluate` for one split alone, all of its folders named."""
    root = held_out_root(ctx.run, ctx.config.tasks.test_splits, split)
    own = {
        "tasks": pool,
        "policy": policy,
        "rm": ctx.path("rm"),
        "out": ctx.paths.get("out") or artifact(root, "eval_trajectories", ctx.iteration),
        "metrics": ctx.paths.get("metrics") or artifact(root, "eval_metrics", ctx.iteration),
    }
    return replace(ctx, paths=own)


def evaluating(config: Config) -> Config:
    """The config with the evaluation's own temperature and step limit."""
    return replace(
        config,
        policy=replace(config.policy, temperature=config.evaluation.temperature),
        env=replace(config.env, max_steps=config.evaluation.max_steps),
    )
