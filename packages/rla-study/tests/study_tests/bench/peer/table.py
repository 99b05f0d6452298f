"""The table of a bench, as text: what each arm reached, and what it used in all and until it reached the level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from study_tests.bench.peer.places import Places, curve_of, rows_of
from study_tests.bench.peer.plan import Arm, Cell, Spent, spent_until, totals

TITLES = {
    Arm.OUTCOME: "rla, outcomes alone",
    Arm.LOOP: "rla, the whole loop",
    Arm.TRL: "TRL GRPOTrainer",
}
KINDS = ("cpu", "wall", "tokens")


def summary(places: Places, cells: Sequence[Cell], *, start: float, gains: Sequence[float]) -> dict[str, Any]:
    """Figures of all cells by arm: curves, sums by part, what was spent until success was `start` plus each gain."""
    arms: dict[str, Any] = {}
    for arm in dict.fromkeys(cell.arm for cell in cells):
        own = [cell for cell in cells if cell.arm is arm]
        curves = [curve_of(places, cell, start) for cell in own]
        rows = [rows_of(places.cell(cell))[: cell.iterations] for cell in own]
        arms[arm] = {
            "rate": own[0].rate,
            "seeds": [cell.seed for cell in own],
            "curves": [[[point.spent.episodes, point.success] for point in curve] for curve in curves],
            "until": {f"{gain:g}": [figures(spent_until(curve, start + gain)) for curve in curves] for gain in gains},
            "episodes": fmean(curve[-1].spent.episodes for curve in curves),
            "parts": {kind: mean_parts([totals(lines, kind) for lines in rows]) for kind in KINDS},
            "peak_mib": max(line["peak_mib"] for lines in rows for line in lines),
        }
    return {"start": start, "arms": arms}


def figures(spent: Spent | None) -> dict[str, float] | None:
    if spent is None:
        return None
    return {"episodes": spent.episodes, "cpu": spent.cpu, "wall": spent.wall, "tokens": spent.tokens}


def mean_parts(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean over cells of what each part used; a part that a cell lacks used nothing there."""
    names = dict.fromkeys(name for parts in found for name in parts)
    return {name: fmean(parts.get(name, 0.0) for parts in found) for name in names}


def text_of(found: Mapping[str, Any]) -> str:
    """Lines for the terminal."""
    lines = [f"held-out success of the start: {found['start']:.1%}"]
    for arm, made in found["arms"].items():
        last = [curve[-1][1] for curve in made["curves"]]
        lines += [
            "",
            f"{TITLES[Arm(arm)]}, learning rate {made['rate']:g}, seeds {' '.join(map(str, made['seeds']))}",
            f"  success after {made['episodes']:,.0f} episodes: {fmean(last):.1%} ({listed(last, '.1%')})",
        ]
        lines += [until(gain, spent) for gain, spent in made["until"].items()]
        lines += [
            f"  peak memory of the process: {made['peak_mib']:,.0f} MiB",
            parts_of(made["parts"], made["episodes"]),
        ]
    return "\n".join(lines)


def until(gain: str, spent: Sequence[Mapping[str, float] | None]) -> str:
    reached = [one for one in spent if one is not None]
    line = f"  +{float(gain):.0%} reached by {len(reached)} of {len(spent)}"
    if not reached:
        return line
    each = [f"{listed([one[kind] for one in reached], ',.0f')} {unit}" for kind, unit in UNITS.items()]
    return f"{line}: {'; '.join(each)}"


UNITS = {"episodes": "episodes", "cpu": "CPU s", "wall": "s of the clock", "tokens": "tokens computed"}


def parts_of(parts: Mapping[str, Mapping[str, float]], episodes: float) -> str:
    """A line for each part, per 128 episodes."""
    share = 128 / episodes
    lines = [f"  {'of 128 episodes':<30}{'CPU s':>8}{'clock s':>9}{'tokens':>12}"]
    sums = {kind: sum(parts[kind].values()) for kind in KINDS}
    for name in [*parts["cpu"], "all"]:
        cpu, wall, tokens = (share * (sums[kind] if name == "all" else parts[kind][name]) for kind in KINDS)
        lines.append(f"  {name:<30}{cpu:>8.1f}{wall:>9.1f}{tokens:>12,.0f}")
    return "\n".join(lines)


def listed(values: Sequence[float], form: str) -> str:
    return ", ".join(format(value, form) for value in values)
