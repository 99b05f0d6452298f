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
from rla.envs.protocols import Adapts
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.pipeline.origins import held_out_pool
from rla.store.layout import artifact, held_out_root, places_of
from rla.store.reading import read_rows, read_tasks
from rla.store.record import is_complete
from rla.store.records import Task

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


def refuse_shared(ctx: StageContext, made: Mapping[str, Sequence[Task]], *, places: Mapping[str, Path]) -> None:
    """UserError if two splits have a task in common: held-out figures would be of tasks that train, or those of two
    splits of the same tasks.

    `made`: the tasks of each split that this call makes. `places`: where the pool of each split lies; those of earlier
    calls count, too, and so does the run's newest pool, which has the changed tasks. Tasks of a data set are also
    compared by what they ask: two rows may differ in nothing but an id.
    """
    train, name = ctx.config.tasks.train_split, ctx.config.env.name
    chosen = environment(name)

    def marks_of(task: Task) -> set[str]:
        imported = ctx.config.tasks.source == "files" and task.env == name
        return {task.task_id, *((chosen.likeness(task),) if imported and isinstance(chosen, Adapts) else ())}

    pools = {split: [*made.get(split, ())] for split in places}
    for split in places.keys() - made.keys():
        adapted = sorted(places_of(ctx.run, "pool"), key=lambda path: int(path.parent.name))[-1:]
        for folder in [places[split], *(adapted if split == train else ())]:
            pools[split] += read_tasks(folder) if is_complete(folder) else ()
    marks = {split: [marks_of(task) for task in tasks] for split, tasks in pools.items()}
    for one, other in combinations(pools, 2):
        known = set().union(*marks[one])
        if shared := sum(not known.isdisjoint(own) for own in marks[other]):
            keys = "tasks.train_split and tasks.test_splits" if train in (one, other) else "tasks.test_splits"
            raise UserError(
                f"{keys}: {one} and {other} share {shared} of {len(pools[other])} tasks; name splits whose "
                "data differ, or files (tasks.path, env.own.test_path)"
            )


def evaluating(config: Config) -> Config:
    """The config with the evaluation's own temperature and step limit."""
    return replace(
        config,
        policy=replace(config.policy, temperature=config.evaluation.temperature),
        env=replace(config.env, max_steps=config.evaluation.max_steps),
    )
