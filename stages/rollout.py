"""`rollout`: episodes of the sampled active tasks and of every pending task."""

from __future__ import annotations

from typing import Any

from rla.adaptation.selection import tasks_and_reserve
from rla.pipeline import StageContext
from rla.pipeline.origins import counts_of, made_by_workers, origin, policy_of, pool_of, slice_of
from rla.rollouts.play import TrajectoryWriter, play_shard
from rla.seeds import derive
from rla.store.reading import read_candidates, read_tasks
from rla.store.records import Task


def run(ctx: StageContext) -> dict[str, Any]:
    """Play all episodes but those that an earlier call has finished. Returns the folder of the shard and its counts."""
    pool, policy = pool_of(ctx), policy_of(ctx)
    candidates = ctx.path("candidates")
    tasks, reserve = chosen_tasks(ctx, read_tasks(pool), read_candidates(candidates))
    folder = ctx.path("out")
    writer = TrajectoryWriter(ctx, folder, origin(ctx, [pool, policy, candidates]), part=slice_of(ctx))
    if not (writer.complete or made_by_workers(ctx, writer)):
        count = ctx.config.rollout.rollouts_per_task
        play_shard(ctx, writer, tasks, policy, count=count, iteration=ctx.iteration, reserve=reserve)
    return {"trajectories": str(folder), **counts_of(writer)}


def chosen_tasks(ctx: StageContext, pool: list[Task], pending: list[Task]) -> tuple[list[Task], list[Task]]:
    """Tasks to play and tasks in reserve, drawn by the seed of this iteration (`rla.adaptation.selection`)."""
    return tasks_and_reserve(
        pool,
        pending,
        config=ctx.config.rollout,
        acceptance=ctx.config.adaptation.acceptance,
        seed=derive(ctx.config.seed, "tasks", ctx.iteration),
        run_seed=derive(ctx.config.seed, "slots"),
    )
