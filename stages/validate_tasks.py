"""`validate-tasks`: pending tasks are accepted or rejected on this iteration's trajectories; the next pool is written."""

from __future__ import annotations

from typing import Any

from rla.adaptation.accept import verdict
from rla.adaptation.pool import next_pool
from rla.records import Direction, StopReason, Task
from rla.shards import read_rows, write_shard
from stages.common import origin, read_tasks
from stages.context import StageContext


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes one verdict per pending task and the pool in which accepted ones stand in their parent's slot."""
    pool_folder, candidates, trajectories = (
        ctx.path(name) for name in ("pool", "candidates", "trajectories")
    )
    pool = read_tasks(pool_folder)
    played = accuracies(
        read_rows(trajectories, "trajectories", ["task_id", "status", "outcome", "stop_reason"])
    )
    rows = read_rows(candidates, "candidates") if candidates.exists() else []
    pending = [row for row in rows if row["valid"] and row["task_id"] in played]
    verdicts = [decide(ctx, row, *played[row["task_id"]]) for row in pending]
    accepted = {row["task_id"] for row in verdicts if row["accepted"]}
    tasks = [Task(**{name: row[name] for name in Task.__dataclass_fields__}) for row in pending]
    following = next_pool(pool, [task for task in tasks if task.task_id in accepted])
    made_from = origin(ctx, [pool_folder, candidates, trajectories])
    counts = {"pending": len(pending), "accepted": len(accepted), "rejected": len(pending) - len(accepted)}
    write_shard(
        ctx.path("verdicts"), "verdicts", verdicts, made_from, counts=counts, overwrite=ctx.overwrite
    )
    write_shard(
        ctx.path("out"), "tasks", [task.row() for task in following], made_from, overwrite=ctx.overwrite
    )
    return {"verdicts": str(ctx.path("verdicts")), "pool": f"{len(following)} tasks", **counts}


def accuracies(rows: list[dict[str, Any]]) -> dict[str, tuple[float, int]]:
    """task id -> (share of won episodes, episodes); episodes that the environment broke do not count."""
    outcomes: dict[str, list[int]] = {}
    for row in rows:
        if row["stop_reason"] != StopReason.ENV_ERROR:
            outcomes.setdefault(row["task_id"], []).append(row["outcome"])
    return {task: (sum(o == 1 for o in values) / len(values), len(values)) for task, values in outcomes.items()}


def decide(ctx: StageContext, row: dict[str, Any], accuracy: float, rollouts: int) -> dict[str, Any]:
    config = ctx.config.adaptation
    accepted, reason = verdict(
        Direction(row["direction"]),
        row["parent_accuracy"],
        accuracy,
        alpha_low=config.alpha_low,
        alpha_high=config.alpha_high,
    )
    return {
        "task_id": row["task_id"],
        "parent_id": row["parent_id"],
        "slot": row["slot"],
        "iteration": ctx.iteration,
        "direction": row["direction"],
        "parent_accuracy": row["parent_accuracy"],
        "accuracy": accuracy,
        "rollouts": rollouts,
        "accepted": accepted,
        "reason": reason,
    }
