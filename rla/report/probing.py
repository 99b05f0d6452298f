"""The reward model on the frozen probe: one line per evaluation, the change between the ends of a run, and a curve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rla.report.collect import RunSummary
from rla.report.tables import ABSENT, Table, bounds, gain_line, gain_text, number, percent

NOTE = (
    "one fixed set of steps of scripted players on held-out tasks; balanced: the mean of the shares of good and of bad "
    "steps that are judged right; intervals over tasks"
)


def probe_table(summary: RunSummary) -> Table:
    """Empty where nothing was measured on a probe."""
    rows = tuple(
        (
            str(row["iteration"]),
            number(row["probe_votes"], 0),
            percent(row["probe_balanced"]),
            bounds(row, "probe_balanced"),
            percent(row["probe_good"]),
            percent(row["probe_bad"]),
            number(row["probe_mu"], 2),
            number_bounds(row, "probe_mu"),
        )
        for row in summary.evaluations
        if row.get("probe_balanced") is not None
    )
    columns = ("iteration", "votes", "balanced", "95% interval", "on good", "on bad", "mu", "95% interval")
    change = summary.probe_change.get("balanced")
    note = f"{NOTE}; balanced, last minus first: {gain_text(change)}" if change else NOTE
    return Table(title="Reward model on the frozen probe", columns=columns, rows=rows, note=note)


def probe_line(summary: RunSummary) -> Iterator[str]:
    """`judge on the frozen probe 59.7% to 66.1%: +6.4 points, 95% interval +2.0 to +10.8`; nothing without a change."""
    known = [row["probe_balanced"] for row in summary.evaluations if row.get("probe_balanced") is not None]
    if change := summary.probe_change.get("balanced"):
        yield gain_line(f"judge on the frozen probe {percent(known[0])} to {percent(known[-1])}", change)


def number_bounds(row: Mapping[str, Any], name: str) -> str:
    """`1.02 to 1.31`, or `-` where a bound is unknown."""
    ends = [row.get(f"{name}_{end}") for end in ("low", "high")]
    return ABSENT if None in ends else " to ".join(number(end, 2) for end in ends)
