"""`evaluate`: success on the held-out tasks, with a 95% interval, overall and by kind of task.

Every held-out split (`tasks.test_splits`) has episodes and figures of its own. `rla.rollouts.evaluation` adds figures
of the reward model, and of environments with a reward rule of their own (`Probes`). `--from` judges the answers of a
file (`rla.pipeline`).
"""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Any

from rla.metrics.success import LIMITS, held_out_metrics
from rla.pipeline import StageContext, implementation
from rla.pipeline.origins import counts_of, made_by_workers, origin, policy_of, slice_of
from rla.rollouts.evaluation import add_further, evaluating, split_contexts
from rla.rollouts.play import TrajectoryWriter, play_shard
from rla.store.atomic import write_json
from rla.store.reading import read_tasks


def run(ctx: StageContext) -> dict[str, Any]:
    """Play `evaluation.rollouts_per_task` episodes of each task; the seeds do not depend on the iteration."""
    given = ctx.options.get("from")
    called = split_contexts(ctx, policy_of(ctx) if given is None else ctx.path("policy"))
    if given is not None:
        judged: dict[str, Any] = implementation("evaluate.from")(called, given, metrics=ctx.paths.get("metrics"))
        return judged
    main = next(iter(called))
    probed = None if "out" in ctx.paths else main  # with --out, the episodes are not an evaluation of the run
    found = {split: _evaluate_split(own, probed=split == probed) for split, own in called.items()}
    return found if len(found) > 1 else found[main]


def _evaluate_split(ctx: StageContext, *, probed: bool) -> dict[str, Any]:
    """One split, in the folders of `ctx`. `probed`: the reward model is also measured on the frozen probe."""
    started = time.monotonic()
    tasks_folder, policy = ctx.path("tasks"), ctx.path("policy")
    tasks = sorted(read_tasks(tasks_folder), key=lambda task: task.task_id)
    wanted = ctx.config.evaluation.tasks or len(tasks)
    count = ctx.config.evaluation.rollouts_per_task
    # Nothing is judged yet, and `evaluation` has a temperature of its own.
    played = [f"policy.{field.name}" for field in fields(ctx.config.policy) if field.name != "temperature"]
    sections = [name for name in ctx.spec.sections if name not in ("judge", "policy")] + played
    folder, made_from = ctx.path("out"), origin(ctx, [tasks_folder, policy], sections=sections)
    writer = TrajectoryWriter(ctx, folder, made_from, part=slice_of(ctx))
    if not (writer.complete or made_by_workers(ctx, writer)):
        own = replace(ctx, config=evaluating(ctx.config))
        play_shard(own, writer, tasks[:wanted], policy, count=count, iteration=0, training=False)
        if not writer.complete:  # the last slice measures
            return {"trajectories": str(folder), **counts_of(writer)}
    split = " ".join(sorted({task.split for task in tasks}))
    metrics = {"iteration": ctx.iteration, "split": split, **held_out_metrics(folder)}
    metrics["seconds"] = round(time.monotonic() - started, 1)
    add_further(metrics, ctx, tasks, probed=probed)
    write_json(ctx.path("metrics"), metrics)
    return {"trajectories": str(folder), **{k: metrics[k] for k in ("episodes", "success", *LIMITS)}}
