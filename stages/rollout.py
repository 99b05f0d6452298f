"""`rollout`: episodes of the sampled active tasks and of every pending task."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from rla.envs.registry import setting
from rla.envs.where import MakeEnv, environments
from rla.models.fingerprint import tokenizer_fingerprint
from rla.records import StopReason, Task, Trajectory
from rla.rollout import Episode, Rollouts, episodes_of, play_groups
from rla.seeds import derive
from rla.shards import ShardWriter, digest, read_manifest, read_part
from stages.common import check_failures, model_folder, origin, read_candidates, read_tasks, run_async
from stages.context import StageContext
from stages.fallback import policy_of, pool_of


def run(ctx: StageContext) -> dict[str, Any]:
    """Plays what an interrupted call has left; returns counts and where the shard lies."""
    pool, policy = pool_of(ctx), policy_of(ctx)
    candidates = ctx.path("candidates")
    tasks = chosen_tasks(ctx, read_tasks(pool), read_candidates(candidates))
    config = ctx.config.rollout
    groups = [
        episodes_of(task, count=config.rollouts_per_task, seed=ctx.config.seed, iteration=ctx.iteration)
        for task in tasks
    ]
    folder = ctx.path("out")
    writer = ShardWriter(folder, "trajectories", origin(ctx, [pool, policy, candidates]), overwrite=ctx.overwrite)
    if not writer.complete:
        play(ctx, writer, groups, policy)
    manifest = read_manifest(folder, "trajectories")
    return {"trajectories": str(folder), **manifest["counts"]}


def chosen_tasks(ctx: StageContext, pool: list[Task], pending: list[Task]) -> list[Task]:
    """A sample of the pool's slots without a pending task, then all pending tasks."""
    waiting = {task.slot for task in pending}
    free = sorted((task for task in pool if task.slot not in waiting), key=lambda task: task.slot)
    count = min(ctx.config.rollout.tasks_per_iteration, len(free))
    drawn = random.Random(derive(ctx.config.seed, "tasks", ctx.iteration)).sample(free, count)
    return drawn + sorted(pending, key=lambda task: task.task_id)


def play(
    ctx: StageContext, writer: ShardWriter, groups: list[list[Episode]], policy: Path, *, training: bool = True
) -> None:
    """Play the groups that have no part yet, and finish the shard. `training`: it may be trained on."""
    with environments(ctx.config, note=ctx.progress.note) as make_env:
        play_in(ctx, writer, groups, policy, make_env, training=training)


def play_in(
    ctx: StageContext,
    writer: ShardWriter,
    groups: list[list[Episode]],
    policy: Path,
    make_env: MakeEnv,
    *,
    training: bool,
) -> None:
    """The same in environments that `make_env` makes."""
    from rla.llm.chat import ChatFormat
    from rla.llm.factory import make_generator

    left = [(index, group) for index, group in enumerate(groups) if index not in writer.done]
    ctx.progress.start("rollout", total=sum(len(group) for _, group in left))

    def finished(position: int, trajectories: list[Trajectory]) -> None:
        writer.write(left[position][0], [trajectory.row() for trajectory in trajectories])
        ctx.progress.advance(len(trajectories))

    if left:
        environment = setting(ctx.config.env.name)
        generator, tokenizer = make_generator(
            ctx.config.generator, model=model_folder(policy), seed=ctx.config.seed, training=training
        )
        shared = Rollouts(
            generator=generator,
            chat=ChatFormat(tokenizer),
            prompt=environment.policy_prompt(ctx.config),
            config=ctx.config.policy,
            make_env=make_env,
            max_steps=ctx.config.env.max_steps,
            omit=frozenset(ctx.config.env.omit_commands),
            iteration=ctx.iteration,
            policy=digest(policy),
        )
        run_async(
            play_groups(
                [group for _, group in left],
                shared,
                concurrency=ctx.config.rollout.concurrency,
                finished=finished,
            )
        )
        generator.close()
    counts = tally(writer.folder)
    if counts["env_errors"] > ctx.config.rollout.max_failed_share * counts["episodes"]:
        forget_failed(writer.folder)
    check_failures(writer.folder, counts["env_errors"], counts["episodes"], ctx.config.rollout.max_failed_share)
    writer.finish(counts, tokenizer=tokenizer_fingerprint(model_folder(policy)))


def tally(folder: Path) -> dict[str, int]:
    """Counts over all parts of a trajectory folder, those of an interrupted call included."""
    names = ("episodes", "won", "steps", "invalid_actions", "truncated", "context_stops", "env_errors")
    counts = dict.fromkeys(names, 0)
    for part in sorted(folder.glob("part-*.parquet")):
        for row in read_part(part, ["stop_reason", "steps"]).to_pylist():
            counts["episodes"] += 1
            counts["won"] += row["stop_reason"] == StopReason.WON
            counts["context_stops"] += row["stop_reason"] == StopReason.CONTEXT
            counts["env_errors"] += row["stop_reason"] == StopReason.ENV_ERROR
            counts["steps"] += len(row["steps"])
            counts["invalid_actions"] += sum(not step["valid"] for step in row["steps"])
            counts["truncated"] += sum(step["truncated"] for step in row["steps"])
    return counts


def forget_failed(folder: Path) -> None:
    """Remove the parts that hold failed episodes, so that the next call plays those groups again."""
    for part in sorted(folder.glob("part-*.parquet")):
        reasons = read_part(part, ["stop_reason"])["stop_reason"].to_pylist()
        if StopReason.ENV_ERROR in reasons:
            part.unlink()
