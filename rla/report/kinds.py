"""The last evaluation by kind and by family of tasks: success with intervals, steps, and why episodes ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

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
    """For each held-out split one by kind, and one by family where families have several kinds; without rows where
    no evaluation has any.
    """
    tables = []
    for found in titled_splits(summary):
        last = last_evaluation(found)
        tables.append(table_by(found, "kind"))
        if 0 < len(last.get("by_family", {})) < len(last.get("by_kind", {})):
            tables.append(table_by(found, "family"))
    return tables


def table_by(found: HeldOut, part: Literal["kind", "family"]) -> Table:
    """One line per part, then all of them."""
    last = last_evaluation(found)
    rows = [(short_kind(name), *kind_cells(row)) for name, row in last.get(f"by_{part}", {}).items()]
    rows += [("all", *kind_cells(last))] if rows else []
    columns = (part, "episodes", "success", "95% interval", "steps", *REASONS.values())
    return Table(
        title=joined_title(f"Held-out tasks by {part}", found.split), columns=columns, rows=tuple(rows), note=NOTE
    )


def last_evaluation(found: HeldOut) -> Mapping[str, Any]:
    return found.evaluations[-1] if found.evaluations else {}


def kind_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ended = row.get("stop_reasons") or {}
    return (
        number(row.get("episodes"), 0),
        percent(row.get("success")),
        bounds(row),
        number(row.get("mean_steps"), 1),
        *(number(ended.get(reason), 0) for reason in REASONS),
    )
