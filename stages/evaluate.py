"""`evaluate`: success on the held-out tasks, with a 95% interval, overall and by kind of task.

A setting with a reward rule of its own is measured by that too. Where its reward model writes about tasks, and there is
one (`--rm`), it writes about the held-out ones: `<run>/eval/<i>/scores`, beside the trajectories.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.config.sections import Config
from rla.envs.protocols import RewardRule
from rla.envs.registry import setting
from rla.errors import UserError
from rla.metrics.intervals import wilson
from rla.models.fingerprint import tokenizer_fingerprint
from rla.pipeline.common import model_folder, origin, read_tasks
from rla.pipeline.context import StageContext
from rla.pipeline.dividing import counts_of, divided, slice_of
from rla.pipeline.fallback import policy_of, pool_of
from rla.store.atomic import write_json
from rla.store.shards import ShardWriter, read_manifest, read_rows
from stages.rollout import play

LIMITS = ("invalid_actions", "truncated", "context_stops", "env_errors")  # counts of what did not end as it should


def run(ctx: StageContext) -> dict[str, Any]:
    """Plays `evaluation.rollouts_per_task` episodes of each task; the seeds do not depend on the iteration."""
    started = time.monotonic()
    tasks_folder, policy = pool_of(ctx, "tasks"), policy_of(ctx)
    tasks = sorted(read_tasks(tasks_folder), key=lambda task: task.task_id)
    wanted = ctx.config.evaluation.tasks or len(tasks)
    count = ctx.config.evaluation.rollouts_per_task
    folder = ctx.path("out")
    made_from = origin(ctx, [tasks_folder, policy], sections=[name for name in ctx.spec.sections if name != "judge"])
    writer = ShardWriter(folder, "trajectories", made_from, overwrite=ctx.overwrite, part=slice_of(ctx))
    if not (writer.complete or divided(ctx, writer)):
        played = replace(ctx, config=evaluating(ctx.config))
        play(played, writer, tasks[:wanted], policy, count=count, iteration=0, training=False)
        if not writer.complete:  # other slices are to come: the last one measures
            return {"trajectories": str(folder), **counts_of(writer)}
    rule = setting(ctx.config.env.name).reward_rule()
    more = {} if rule is None else by_rule(ctx, rule)
    metrics = measure(ctx, time.monotonic() - started) | more
    write_json(ctx.path("metrics"), metrics, writer=writer.slice.tag)
    return {"trajectories": str(folder), **{k: metrics[k] for k in ("episodes", "success", *LIMITS)}}


def by_rule(ctx: StageContext, rule: RewardRule) -> dict[str, Any]:
    """The metrics of the setting's own rule, with the reward model where there is one."""
    from rla.store.frames import read_episodes, read_judgements

    scores = scored(ctx)
    episodes, _ = read_episodes(ctx.path("out"), texts=True)
    return rule.metrics(episodes, read_judgements(scores))


def scored(ctx: StageContext) -> Path | None:
    """The folder of what the reward model wrote about the held-out tasks; None where there is no reward model."""
    from rla.rollouts.scoring import score, tally

    rm, folder = ctx.path("rm"), ctx.path("out").with_name("scores")
    if not (ctx.config.judge.enabled and rm.exists()):
        ctx.progress.note(f"{rm}: no reward model; programs are evaluated alone")
        return None
    writer = ShardWriter(folder, "scores", origin(ctx, [ctx.path("out"), rm]), overwrite=ctx.overwrite)
    if not writer.complete:
        score(ctx, writer, ctx.path("out"), rm, pools=("tasks",))
        writer.finish(tally(writer.parts()), tokenizer=tokenizer_fingerprint(model_folder(rm)))
    return folder


def evaluating(config: Config) -> Config:
    """The config with the evaluation's own temperature and step limit."""
    return replace(
        config,
        policy=replace(config.policy, temperature=config.evaluation.temperature),
        env=replace(config.env, max_steps=config.evaluation.max_steps),
    )


def measure(ctx: StageContext, seconds: float) -> dict[str, Any]:
    folder = ctx.path("out")
    rows = read_rows(folder, "trajectories", ["kind", "outcome"])
    won = sum(row["outcome"] == 1 for row in rows)
    interval = wilson(won, len(rows))
    if interval is None:
        raise UserError(f"{folder}: no episode was played; the held-out pool or evaluation.tasks is empty")
    by_kind: dict[str, dict[str, float]] = {}
    for kind in sorted({row["kind"] for row in rows}):
        outcomes = [row["outcome"] == 1 for row in rows if row["kind"] == kind]
        by_kind[kind] = {"episodes": len(outcomes), "success": sum(outcomes) / len(outcomes)}
    counts = read_manifest(folder, "trajectories")["counts"]
    return {
        "iteration": ctx.iteration,
        "episodes": len(rows),
        "success": interval.estimate,
        "success_low": interval.low,
        "success_high": interval.high,
        "mean_steps": counts["steps"] / len(rows),
        **{name: counts[name] for name in LIMITS},
        "by_kind": by_kind,
        "seconds": round(seconds, 1),
    }
