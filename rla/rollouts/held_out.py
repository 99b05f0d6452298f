"""The held-out splits of a run: each has a pool, rows and figures of its own, and one stage plays them all.

The main split lies where the only one lies in a run of one; every further split below a root of its own
(`rla.store.layout`), in folders of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from rla.config.sections import Config
from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.pipeline.fallback import held_out_pool
from rla.store.layout import artifact, held_out_root
from rla.store.records import Task

ONE = ("tasks", "out", "metrics")  # options that name a folder of one split


def evaluated_splits(ctx: StageContext) -> list[str]:
    """The splits that a call of `evaluate` plays: all, or the main one alone where an option names a folder of one."""
    splits = ctx.config.tasks.held_out_splits
    return list(splits[:1] if any(name in ctx.paths for name in ONE) else splits)


def pool_of_split(ctx: StageContext, split: str) -> Path:
    """The pool that the option names, or that of the split, made where it is missing."""
    return ctx.paths.get("tasks") or held_out_pool(ctx, split)


def split_context(ctx: StageContext, split: str, *, pool: Path, policy: Path) -> StageContext:
    """The call of `evaluate` for one split alone, all of its folders named."""
    root = held_out_root(ctx.run, ctx.config.tasks.held_out_splits, split)
    own = {
        "tasks": pool,
        "policy": policy,
        "rm": ctx.path("rm"),
        "out": ctx.paths.get("out") or artifact(root, "eval_trajectories", ctx.iteration),
        "metrics": ctx.paths.get("metrics") or artifact(root, "eval_metrics", ctx.iteration),
    }
    return replace(ctx, paths=own)


def refuse_shared(pools: Mapping[str, Sequence[Task]]) -> None:
    """UserError where two held-out splits have a task in common: their figures would not be of different tasks."""
    for (one, first), (other, second) in combinations(pools.items(), 2):
        if shared := {task.task_id for task in first} & {task.task_id for task in second}:
            raise UserError(
                f"tasks.test_splits: {one} and {other} share {len(shared)} of {len(first)} tasks; name splits whose "
                "data differ"
            )


def evaluating(config: Config) -> Config:
    """The config with the evaluation's own temperature and step limit."""
    return replace(
        config,
        policy=replace(config.policy, temperature=config.evaluation.temperature),
        env=replace(config.env, max_steps=config.evaluation.max_steps),
    )
