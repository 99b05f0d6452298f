"""`validate-tasks`: pending tasks are accepted or rejected on this iteration's trajectories; then the next pool.

What it decides follows from its folders alone: the pool and its standings as the last iteration left them, the
candidates, this iteration's trajectories, and the roots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rla.adaptation.accept import TaskVerdict, judge_pending
from rla.adaptation.kinds import Counted, tally
from rla.adaptation.next_pool import next_pool
from rla.adaptation.players import with_expert
from rla.adaptation.standings import Standing, next_standings, returned_slots
from rla.envs.registry import setting
from rla.pipeline.common import origin, read_tasks
from rla.pipeline.context import StageContext
from rla.store.records import Direction, StopReason, Task
from rla.store.shards import read_rows, write_shard


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes one verdict per pending task, how every slot stands, and the pool in which accepted ones stand in their
    parent's slot and roots in that of a descendant that left the band for good.
    """
    folders = [ctx.path(name) for name, _ in ctx.spec.reads]
    pool, candidates = read_tasks(ctx.path("pool")), ctx.path("candidates")
    pending = read_tasks(candidates, "candidates") if candidates.exists() else []
    measured = accuracies(read_rows(ctx.path("trajectories"), "trajectories", ["task_id", "outcome", "stop_reason"]))
    verdicts = judged(ctx, pending, measured)
    standings = next_standings(
        pool, verdicts, measured, standings_before(ctx), iteration=ctx.iteration, config=ctx.config.adaptation
    )
    returned = returned_slots(standings)
    changed = returned | {decided.slot for decided in verdicts if decided.accepted}
    roots = {task.slot: task for task in read_tasks(ctx.path("roots")) if task.slot in changed} if changed else {}
    following = next_pool(pool, pending, verdicts, {slot: task for slot, task in roots.items() if slot in returned})
    known = {task.task_id: task for task in (*roots.values(), *pool, *pending)}
    player = setting(ctx.config.env.name)
    verdicts = with_expert(
        verdicts,
        known,
        player,
        ctx.config.env,
        episodes=ctx.config.adaptation.expert_episodes if player.has_expert else 0,
        seed=ctx.config.seed,
    )
    counts = counted(verdicts, pending, standings)
    made_from = origin(ctx, folders)
    for option, kind, rows in (
        ("verdicts", "verdicts", [decided.row() for decided in verdicts]),
        ("standings", "standings", [standing.row() for standing in standings]),
        ("out", "tasks", [task.row() for task in following]),
    ):
        own = counts if option == "verdicts" else None
        write_shard(ctx.path(option), kind, rows, made_from, counts=own, overwrite=ctx.overwrite)
    shown = {key: counts[key] for key in ("pending", "accepted", "rejected", "returned", "accepted_total")}
    return {"verdicts": str(ctx.path("verdicts")), "pool": f"{len(following)} tasks", **shown}


def judged(ctx: StageContext, pending: list[Task], measured: dict[str, tuple[float, int]]) -> list[TaskVerdict]:
    """The verdict on every pending task, by the rule of the config."""
    asked = read_rows(ctx.path("candidates"), "candidates", ["task_id", "parent_accuracy"]) if pending else []
    config = ctx.config.adaptation
    return judge_pending(
        pending,
        measured,
        {row["task_id"]: row["parent_accuracy"] for row in asked},
        iteration=ctx.iteration,
        alpha_low=config.alpha_low,
        alpha_high=config.alpha_high,
        rule=config.acceptance,
        confidence=config.confidence,
    )


def standings_before(ctx: StageContext) -> list[Standing]:
    """How the slots stood after the iteration before; at the first nothing has happened to any."""
    folder = ctx.path("before")
    first = ctx.iteration <= 1 and "before" not in ctx.paths and not folder.exists()
    return [] if first else read_standings(folder)


def read_standings(folder: Path) -> list[Standing]:
    """How the slots of a pool stand, in its order."""
    return [Standing(**{**row, "tried": tuple(row["tried"])}) for row in read_rows(folder, "standings")]


def counted(verdicts: Sequence[TaskVerdict], pending: Sequence[Task], standings: Sequence[Standing]) -> dict[str, Any]:
    """The counts of the verdicts' manifest, which are also part of the iteration's metrics. The expert's figures are
    means over the accepted tasks, null where none was.
    """
    accepted = [decided for decided in verdicts if decided.accepted]
    edits = {task.task_id: task.edit for task in pending}
    return {
        "pending": len(verdicts),
        "accepted": len(accepted),
        "accepted_harder": sum(decided.direction == Direction.HARDER for decided in accepted),
        "accepted_easier": sum(decided.direction == Direction.EASIER for decided in accepted),
        "rejected": len(verdicts) - len(accepted),
        "returned": len(returned_slots(standings)),
        "accepted_total": sum(standing.accepted for standing in standings),
        "returned_total": sum(standing.returned for standing in standings),
        "adapted_slots": sum(standing.depth > 0 for standing in standings),
        "pool_depth_mean": fmean(standing.depth for standing in standings),
        "expert_success": mean(decided.expert_success for decided in accepted),
        "expert_steps": mean(decided.expert_steps for decided in accepted),
        "parent_expert_success": mean(decided.parent_expert_success for decided in accepted),
        "parent_expert_steps": mean(decided.parent_expert_steps for decided in accepted),
        "root_expert_success": mean(decided.root_expert_success for decided in accepted),
        "root_expert_steps": mean(decided.root_expert_steps for decided in accepted),
        "by_edit": tally(
            Counted(
                decided.direction,
                edits[decided.task_id],
                {"measured": decided.rollouts > 0, "accepted": decided.accepted},
            )
            for decided in verdicts
        ),
    }


def mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


def accuracies(rows: list[dict[str, Any]]) -> dict[str, tuple[float, int]]:
    """task id -> (share of won episodes, episodes); episodes that the environment broke do not count."""
    outcomes: dict[str, list[int]] = {}
    for row in rows:
        if row["stop_reason"] != StopReason.ENV_ERROR:
            outcomes.setdefault(row["task_id"], []).append(row["outcome"])
    return {task: (sum(o == 1 for o in values) / len(values), len(values)) for task, values in outcomes.items()}
