"""Success on held-out tasks: overall and by kind of task with intervals, steps, why episodes ended, and how many met a
limit.

Episodes that the environment broke tell nothing about the policy. As in the metrics of an iteration they count neither
as won nor as lost, and `env_errors` says how many there were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.metrics.intervals import success_interval
from rla.store.reading import read_manifest, stream_rows
from rla.store.records import StopReason

# counts of replies and episodes that did not end well
LIMITS = ("invalid_actions", "truncated", "context_stops", "env_errors")
READ = ("task_id", "kind", "outcome", "stop_reason", "steps.list.element.valid")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedEpisode:
    """An episode as it is counted. `stop_reason`: why it ended, None if it was played elsewhere."""

    task_id: str
    kind: str
    won: bool
    steps: int
    broken: bool = False
    stop_reason: StopReason | None = None


def held_out_metrics(folder: Path) -> dict[str, Any]:
    """The metrics of a complete trajectory shard.

    `episodes` counts unbroken ones, `steps` all that were taken. Raises UserError if none counts.
    """
    counts = read_manifest(folder, "trajectories")["counts"]
    played = list(map(evaluated_episode, stream_rows(folder, "trajectories", READ)))
    if all(one.broken for one in played):
        raise UserError(
            f"{folder}: the environment broke all {len(played)} episodes; mend it and call the stage with --overwrite"
            if played
            else f"{folder}: no episode was played; the held-out pool or evaluation.tasks is empty"
        )
    return success_metrics(played, counts)


def evaluated_episode(row: Mapping[str, Any]) -> EvaluatedEpisode:
    """From a trajectory row with the columns of `READ`."""
    return EvaluatedEpisode(
        task_id=row["task_id"],
        kind=row["kind"],
        won=row["outcome"] == 1,
        steps=len(row["steps"]),
        broken=row["stop_reason"] == StopReason.ENV_ERROR,
        stop_reason=StopReason(row["stop_reason"]),
    )


def success_metrics(played: Sequence[EvaluatedEpisode], counts: Mapping[str, int | None]) -> dict[str, Any]:
    """The metrics of episodes of which at least one counts; `counts` are of all."""
    kinds = sorted({one.kind for one in played if not one.broken})
    return {
        **_figures(played),
        "steps": counts["steps"],
        **{name: counts[name] for name in LIMITS},
        "by_kind": {kind: _figures([one for one in played if one.kind == kind]) for kind in kinds},
    }


def _figures(played: Sequence[EvaluatedEpisode]) -> dict[str, Any]:
    """Figures of episodes of which at least one counts.

    `stop_reasons`: how many episodes ended for each reason, broken ones included; None if a reason is unknown.
    """
    whole = [one for one in played if not one.broken]
    interval = success_interval((one.task_id, one.won) for one in whole)
    if interval is None:
        raise ValueError("no episode counts")
    reasons = [one.stop_reason for one in played]
    return {
        "episodes": len(whole),
        "success": interval.estimate,
        "success_low": interval.low,
        "success_high": interval.high,
        "mean_steps": sum(one.steps for one in whole) / len(whole),
        "stop_reasons": None if None in reasons else {str(reason): reasons.count(reason) for reason in StopReason},
    }
