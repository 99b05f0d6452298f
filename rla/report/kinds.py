"""The last evaluation by kind of task: success with intervals, steps, and why episodes ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rla.report.collect import HeldOut, RunSummary, titled_splits
from rla.report.tables import Table, bounds, joined_title, number, percent, short_kind
from rla.store.records import StopReason

REASONS = {
    StopReason.WON: "won",
    StopReason.ENDED: "ended",
    StopReason.MAX_STEPS: "max steps",
    StopReason.CONTEXT: "context full",
    StopReason.ENV_ERROR: "env errors",
}
NOTE = (
    "the last evaluation; a task is one draw; ended: by the environment or the agent, and not won; max steps: of the "
    "episode; env errors count in no other column"
)


def kind_tables(summary: RunSummary) -> list[Table]:
    """One for each held-out split; without rows where no evaluation has kinds."""
    return [kind_table(found) for found in titled_splits(summary)]


def kind_table(found: HeldOut) -> Table:
    """One line per kind, then all of them. What an earlier version did not measure is absent."""
    last: Mapping[str, Any] = found.evaluations[-1] if found.evaluations else {}
    kinds = last.get("by_kind", {})
    rows = [(short_kind(kind), *kind_cells(row)) for kind, row in kinds.items()]
    rows += [("all", *kind_cells(last))] if rows else []
    columns = ("kind", "episodes", "success", "95% interval", "steps", *REASONS.values())
    title = joined_title("Held-out tasks by kind", found.split)
    return Table(title=title, columns=columns, rows=tuple(rows), note=NOTE)


def kind_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ended = row.get("stop_reasons") or {}
    return (
        number(row.get("episodes"), 0),
        percent(row.get("success")),
        bounds(row),
        number(row.get("mean_steps"), 1),
        *(number(ended.get(reason), 0) for reason in REASONS),
    )
