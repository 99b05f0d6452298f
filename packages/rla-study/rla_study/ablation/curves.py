"""Learning curves of an ablation as an SVG file: one line per arm, its mean over seeds, and the range of its seeds.

The panels are held-out success, one for each further held-out split, the judge's accuracy in the iterations, accepted
tasks, and each measure that a design names. A panel without data is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from rla_study.ablation.accepted import Course, accepted_course, changes_tasks, won_course
from rla_study.ablation.measures import measured_series
from rla_study.ablation.outcomes import ArmOutcome, held_out_names, on_split

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ITERATION_KEYS = (
    ("success", "success on the tasks played"),
    ("rm_process_accuracy", "judge: process accuracy"),
    ("rm_outcome_accuracy", "judge: outcome accuracy"),
)
ACCEPTED: tuple[tuple[str, str, Callable[[ArmOutcome], Course]], ...] = (
    ("accepted tasks so far", "", accepted_course),
    ("accepted tasks that the player wins", "%", won_course),
)
MOST_BESIDE = 4  # panels that fit side by side on a page
WIDTH, HEIGHT = 4.25, 3.9  # of a panel, in inches


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCurve:
    """The points of an arm, named by its place; `low` and `high`: the range of its seeds, if that is drawn."""

    arm: int
    steps: Sequence[int]
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePanel:
    title: str
    unit: str
    curves: Sequence[ArmCurve]


def draw_curves(arms: Sequence[ArmOutcome], out: Path, *, measures: Sequence[str] = ()) -> None:
    """Draw the curves into `out`; nothing is written if there are none."""
    shown = curve_panels(arms, measures)
    if not shown:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    drawn_figure(arms, shown).savefig(out, metadata={"Date": None})


def curve_panels(arms: Sequence[ArmOutcome], measures: Sequence[str] = ()) -> list[CurvePanel]:
    """The panels with data, in their order."""
    known = [(place, found) for place, found in enumerate(arms) if found.shared_points]
    panels = [CurvePanel(title="success on held-out tasks", unit="%", curves=[_success_curve(*one) for one in known])]
    for split in held_out_names(arms):
        curves = [_success_curve(place, on_split(found, split)) for place, found in known]
        panels.append(CurvePanel(title=f"success on {split}", unit="%", curves=curves))
    for key, title in ITERATION_KEYS:
        panels.append(
            CurvePanel(title=title, unit="%", curves=[_named_curve(p, series(found, key)) for p, found in known])
        )
    changing = [(place, found) for place, found in known if changes_tasks(found)]
    for title, unit, course in ACCEPTED:
        panels.append(CurvePanel(title=title, unit=unit, curves=[_named_curve(p, course(a)) for p, a in changing]))
    for measure in measures:
        curves = [_named_curve(place, measured_mean(found, measure)) for place, found in known]
        panels.append(CurvePanel(title=measure, unit="", curves=curves))
    return [panel for panel in panels if any(one.steps for one in panel.curves)]


def drawn_figure(arms: Sequence[ArmOutcome], shown: Sequence[CurvePanel]) -> Figure:
    """The panels in rows of equal length, with one legend of all arms below them."""
    from matplotlib.figure import Figure

    rows = ceil(len(shown) / MOST_BESIDE)
    beside = ceil(len(shown) / rows)
    figure = Figure(figsize=(WIDTH * beside, HEIGHT * rows + 0.3), layout="constrained")
    handles = {}
    for axes, panel in zip(
        figure.subplots(rows, beside, squeeze=False).flat, padded(shown, rows * beside), strict=True
    ):
        if panel is None:
            axes.set_axis_off()
            continue
        axes.set(title=panel.title, xlabel="iteration", ylabel=panel.unit)
        axes.grid(alpha=0.3)
        for one in panel.curves:
            colour, marker = f"C{one.arm}", "o" if len(one.low) or len(one.steps) == 1 else ""
            (handles[one.arm],) = axes.plot(one.steps, one.values, color=colour, marker=marker, markersize=3)
            if len(one.low):
                axes.fill_between(one.steps, one.low, one.high, color=colour, alpha=0.12)
    known = sorted(handles)
    titles = [arms[place].arm.title for place in known]
    columns = min(len(known), 2 * beside)
    figure.legend([handles[p] for p in known], titles, loc="outside lower center", ncols=columns, fontsize=9)
    return figure


def padded(shown: Sequence[CurvePanel], count: int) -> Iterator[CurvePanel | None]:
    yield from shown
    yield from [None] * (count - len(shown))


def _success_curve(place: int, found: ArmOutcome) -> ArmCurve:
    """Success by iteration with the range of seeds."""
    steps = found.shared_points
    of_seeds = [[100 * run.rate(point) for run in found.runs] for point in steps]
    return ArmCurve(
        arm=place,
        steps=steps,
        values=[sum(row) / len(row) for row in of_seeds],
        low=[min(row) for row in of_seeds],
        high=[max(row) for row in of_seeds],
    )


def _named_curve(place: int, points: Course) -> ArmCurve:
    return ArmCurve(arm=place, steps=points[0], values=points[1])


def series(found: ArmOutcome, key: str) -> Course:
    """The iterations at which some seed has `key`, and its mean there in per cent."""
    by_iteration: dict[int, list[float]] = {}
    for run in found.runs:
        for row in run.iterations:
            if row.get(key) is not None:
                by_iteration.setdefault(row["iteration"], []).append(100 * row[key])
    steps = sorted(by_iteration)
    return steps, [sum(by_iteration[step]) / len(by_iteration[step]) for step in steps]


def measured_mean(found: ArmOutcome, measure: str) -> Course:
    """The iterations at which every seed has the measure, and its mean there."""
    runs = [measured_series(run, measure) for run in found.runs]
    steps = sorted(set.intersection(*map(set, runs))) if runs else []
    return steps, [sum(run[step] for run in runs) / len(runs) for step in steps]
