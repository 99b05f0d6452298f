"""`validate-tasks`: pending tasks are accepted or rejected on this iteration's trajectories; then the next pool."""

from __future__ import annotations

from typing import Any

from rla.adaptation.accept import judge_pending
from rla.adaptation.pool import next_pool
from rla.records import StopReason
from rla.shards import read_rows, write_shard
from stages.common import origin, read_tasks
from stages.context import StageContext


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes one verdict per pending task and the pool in which accepted ones stand in their parent's slot."""
    folders = [ctx.path(name) for name in ("pool", "candidates", "trajectories")]
    pool_folder, candidates, trajectories = folders
    pool = read_tasks(pool_folder)
    pending = read_tasks(candidates, "candidates") if candidates.exists() else []
    asked = read_rows(candidates, "candidates", ["task_id", "parent_accuracy"]) if pending else []
    verdicts = judge_pending(
        pending,
        accuracies(read_rows(trajectories, "trajectories", ["task_id", "outcome", "stop_reason"])),
        {row["task_id"]: row["parent_accuracy"] for row in asked},
        iteration=ctx.iteration,
        alpha_low=ctx.config.adaptation.alpha_low,
        alpha_high=ctx.config.adaptation.alpha_high,
    )
    following = next_pool(pool, pending, verdicts)
    accepted = sum(decided.accepted for decided in verdicts)
    counts = {
        "pending": len(pending),
        "accepted": accepted,
        "rejected": len(pending) - accepted,
        "pool_depth_mean": sum(task.depth for task in following) / len(following),
    }
    made_from = origin(ctx, folders)
    verdict_rows = [decided.row() for decided in verdicts]
    write_shard(ctx.path("verdicts"), "verdicts", verdict_rows, made_from, counts=counts, overwrite=ctx.overwrite)
    pool_rows = [task.row() for task in following]
    write_shard(ctx.path("out"), "tasks", pool_rows, made_from, overwrite=ctx.overwrite)
    return {"verdicts": str(ctx.path("verdicts")), "pool": f"{len(following)} tasks", **counts}


def accuracies(rows: list[dict[str, Any]]) -> dict[str, tuple[float, int]]:
    """task id -> (share of won episodes, episodes); episodes that the environment broke do not count."""
    outcomes: dict[str, list[int]] = {}
    for row in rows:
        if row["stop_reason"] != StopReason.ENV_ERROR:
            outcomes.setdefault(row["task_id"], []).append(row["outcome"])
    return {task: (sum(o == 1 for o in values) / len(values), len(values)) for task, values in outcomes.items()}
