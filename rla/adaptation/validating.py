"""Verdicts on pending tasks and how every slot stands, from the folders of an iteration alone: the pool and its
standings as the last iteration left them, the candidates, this iteration's trajectories, and the roots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rla.adaptation.accept import TaskVerdict, judge_pending
from rla.adaptation.kinds import Counted, edit_tally
from rla.adaptation.standings import Standing, returned_slots
from rla.pipeline.context import StageContext
from rla.store.reading import read_rows
from rla.store.records import Direction, StopReason, Task


def pending_verdicts(
    ctx: StageContext, pending: list[Task], measured: dict[str, tuple[float, int]]
) -> list[TaskVerdict]:
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


def verdict_counts(
    verdicts: Sequence[TaskVerdict], pending: Sequence[Task], standings: Sequence[Standing], *, fields: Collection[str]
) -> dict[str, Any]:
    """The counts of the verdicts' manifest, which are also part of the iteration's metrics. `fields`: those of edits.
    The expert's figures are means over the accepted tasks, null where none was.
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
        "expert_success": known_mean(decided.expert_success for decided in accepted),
        "expert_steps": known_mean(decided.expert_steps for decided in accepted),
        "parent_expert_success": known_mean(decided.parent_expert_success for decided in accepted),
        "parent_expert_steps": known_mean(decided.parent_expert_steps for decided in accepted),
        "root_expert_success": known_mean(decided.root_expert_success for decided in accepted),
        "root_expert_steps": known_mean(decided.root_expert_steps for decided in accepted),
        "by_edit": edit_tally(
            (
                Counted(
                    decided.direction,
                    edits[decided.task_id],
                    {"measured": decided.rollouts > 0, "accepted": decided.accepted},
                )
                for decided in verdicts
            ),
            fields=fields,
        ),
    }


def known_mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


def measured_accuracies(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, int]]:
    """task id -> (share of won episodes, episodes); episodes that the environment broke do not count."""
    outcomes: dict[str, list[int]] = {}
    for row in rows:
        if row["stop_reason"] != StopReason.ENV_ERROR:
            outcomes.setdefault(row["task_id"], []).append(row["outcome"])
    return {task: (sum(o == 1 for o in values) / len(values), len(values)) for task, values in outcomes.items()}
