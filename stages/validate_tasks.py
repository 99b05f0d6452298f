"""`validate-tasks`: pending tasks are accepted or rejected on this iteration's trajectories; then the next pool."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rla.adaptation.acceptance import (
    Decision,
    judge_pending,
    measured_accuracies,
    next_pool,
    next_standings,
    read_standings,
    verdict_counts,
    with_expert,
)
from rla.envs.protocols import Adapts, HasExpert
from rla.envs.registry import environment
from rla.pipeline import StageContext
from rla.pipeline.origins import origin
from rla.store.reading import read_candidates, read_rows, read_tasks
from rla.store.shards import Output, write_shards


def run(ctx: StageContext) -> dict[str, Any]:
    """Write one verdict per pending task, the standing of every slot, and the next pool. In it, accepted tasks replace
    their parents, and roots replace descendants that left the band for good.
    """
    folders, config = [ctx.path(name) for name, _ in ctx.spec.reads], ctx.config.adaptation
    pool, pending = read_tasks(ctx.path("pool")), read_candidates(ctx.path("candidates"))
    played = read_rows(ctx.path("trajectories"), "trajectories", ["task_id", "outcome", "stop_reason"])
    measured = measured_accuracies(played)
    asked = read_rows(ctx.path("candidates"), "candidates", ["task_id", "parent_accuracy"]) if pending else []
    accuracies = {row["task_id"]: row["parent_accuracy"] for row in asked}
    verdicts = judge_pending(pending, measured, accuracies, iteration=ctx.iteration, config=config)
    before = ctx.path("before")
    first = ctx.iteration <= 1 and "before" not in ctx.paths and not before.exists()
    earlier = [] if first else read_standings(before)
    standings = next_standings(pool, verdicts, measured, earlier, iteration=ctx.iteration, config=config)
    returned = {standing.slot for standing in standings if standing.decision == Decision.RETURNED}
    changed = returned | {decided.slot for decided in verdicts if decided.accepted}
    roots = {task.slot: task for task in read_tasks(ctx.path("roots")) if task.slot in changed} if changed else {}
    following = next_pool(pool, pending, verdicts, {slot: task for slot, task in roots.items() if slot in returned})
    chosen = environment(ctx.config.env.name)
    if isinstance(chosen, HasExpert):
        known = {task.task_id: task for task in (*roots.values(), *pool, *pending)}
        verdicts = with_expert(verdicts, known, chosen, ctx.config)
    fields = chosen.edit_fields if isinstance(chosen, Adapts) else frozenset[str]()
    counts = verdict_counts(verdicts, pending, standings, fields=fields)
    outputs = [
        Output(folder=ctx.path("verdicts"), kind="verdicts", rows=[*map(asdict, verdicts)], counts=counts),
        Output(folder=ctx.path("standings"), kind="standings", rows=[*map(asdict, standings)]),
        Output(folder=ctx.path("out"), kind="tasks", rows=[task.row() for task in following]),
    ]
    write_shards(outputs, origin(ctx, folders), overwrite=ctx.overwrite, tell=ctx.progress.note)
    shown = {key: counts[key] for key in ("pending", "accepted", "rejected", "returned", "accepted_total")}
    return {"verdicts": str(ctx.path("verdicts")), "pool": f"{len(following)} tasks", **shown}
