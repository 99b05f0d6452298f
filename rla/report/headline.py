"""What a run comes to, in a few lines: they stand first and last in every form of the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rla.report.collect import HeldOut, RunSummary, titled_splits
from rla.report.probing import probe_line
from rla.report.tables import gain_line, number, percent


def headline(summary: RunSummary) -> list[str]:
    """Success on every held-out split; then the judge on its probe, the reward model, the tasks and the time.

    Empty before anything is done.
    """
    lines = [line for found in titled_splits(summary) for line in success_line(found)]
    others = "; ".join(other_figures(summary))
    return [*lines, *probe_line(summary), *([others] if others else [])]


def success_line(found: HeldOut) -> Iterator[str]:
    """`held-out success 29.4% to 48.7% in 12 iterations: +19.3 points, 95% interval +12.5 to +26.1`."""
    rows = [row for row in found.evaluations if row.get("success") is not None]
    if not rows:
        return
    name = f"held-out success on {found.split}" if found.split else "held-out success"
    if found.gain is None:
        yield f"{name} {percent(rows[-1]['success'])} at iteration {rows[-1]['iteration']}"
        return
    count = rows[-1]["iteration"] - rows[0]["iteration"]
    span = f"{percent(rows[0]['success'])} to {percent(rows[-1]['success'])} in {count} iteration{'s' * (count != 1)}"
    yield gain_line(f"{name} {span}", found.gain)


def other_figures(summary: RunSummary) -> Iterator[str]:
    yield from first_to_last(summary, "mu", "mu", 2)
    yield from first_to_last(summary, "rm_process_balanced", "judge right about steps", None)
    accepted = [row["accepted_total"] for row in summary.iterations if row.get("accepted_total") is not None]
    if accepted:
        yield f"{number(accepted[-1], 0)} changed tasks accepted"
    seconds = sum(summary.seconds.values())
    if seconds:
        yield stage_time(seconds)


def first_to_last(summary: RunSummary, key: str, name: str, digits: int | None) -> Iterator[str]:
    """`mu 1.12 to 1.07`; digits None: in per cent."""
    known: list[Mapping[str, Any]] = [row for row in summary.iterations if row.get(key) is not None]
    if known:
        ends = [percent(row[key]) if digits is None else number(row[key], digits) for row in (known[0], known[-1])]
        yield f"{name} {' to '.join(dict.fromkeys(ends))}"


def stage_time(seconds: float) -> str:
    """`41 s`, `12 min`, `3 h 5 min`, of stages."""
    if seconds < 100:
        return f"{seconds:.0f} s of stages"
    minutes = round(seconds / 60)
    return f"{minutes} min of stages" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min of stages"
