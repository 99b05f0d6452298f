"""Success on held-out tasks: overall with its interval, by kind of task, and how many episodes met a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.metrics.intervals import success_interval
from rla.store.reading import read_manifest, read_rows

LIMITS = ("invalid_actions", "truncated", "context_stops", "env_errors")  # counts of what did not end as it should


def held_out_metrics(folder: Path) -> dict[str, Any]:
    """The metrics of a complete trajectory shard. Raises UserError where no episode was played."""
    rows = read_rows(folder, "trajectories", ["task_id", "kind", "outcome"])
    interval = success_interval((row["task_id"], row["outcome"] == 1) for row in rows)
    if interval is None:
        raise UserError(f"{folder}: no episode was played; the held-out pool or evaluation.tasks is empty")
    by_kind: dict[str, dict[str, float]] = {}
    for kind in sorted({row["kind"] for row in rows}):
        outcomes = [row["outcome"] == 1 for row in rows if row["kind"] == kind]
        by_kind[kind] = {"episodes": len(outcomes), "success": sum(outcomes) / len(outcomes)}
    counts = read_manifest(folder, "trajectories")["counts"]
    return {
        "episodes": len(rows),
        "success": interval.estimate,
        "success_low": interval.low,
        "success_high": interval.high,
        "mean_steps": counts["steps"] / len(rows),
        **{name: counts[name] for name in LIMITS},
        "by_kind": by_kind,
    }
