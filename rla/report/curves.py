"""The curves of a run as SVG texts: what it did over iterations, with intervals where they are known."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rla.metrics.custom import followed_figures
from rla.report.collect import Row, RunSummary, titled_splits
from rla.report.tables import LOOP
from rla.store.atomic import write_text

WIDTH, HEIGHT = 5.2, 3.0  # inches
# Text stays text, and equal figures have equal ids, so that a page that is written again is the same file.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "rla", "font.size": 9, "axes.spines.top": False}
STYLE |= {"axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`low`, `high`: bounds of an interval, one for each point, or none."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`name`: of its file. `level`: a line across where something changes its meaning. `stacked`: lines are parts of a
    sum.
    """

    name: str
    title: str
    lines: tuple[Line, ...]
    unit: str = ""
    level: float | None = None
    stacked: bool = False


def panels(summary: RunSummary) -> list[Panel]:
    """Every panel that has a point to draw."""
    rows = summary.iterations
    found = [
        Panel(name="success", title="Success", lines=tuple(success_lines(summary)), unit="%"),
        Panel(
            name="mu",
            title="mu: the reward model helps above 1",
            lines=tuple(known_lines(rows, {"mu": "mu"})),
            level=1.0,
        ),
        Panel(
            name="judge",
            title="The reward model against fact",
            lines=tuple(
                known_lines(rows, {"rm_process_balanced": "balanced", "rm_outcome_accuracy": "outcome"}, times=100)
            ),
            unit="%",
            level=50.0,
        ),
        Panel(
            name="accepted-tasks",
            title="Accepted tasks so far",
            lines=tuple(known_lines(rows, {"accepted_total": "accepted", "adapted_slots": "slots changed"})),
        ),
        Panel(
            name="entropy",
            title="Entropy",
            lines=tuple(known_lines(rows, {"policy_entropy": "policy", "rm_entropy": "reward model"})),
        ),
        Panel(
            name="kl",
            title="KL of an update",
            lines=tuple(known_lines(rows, {"policy_approx_kl": "policy", "rm_approx_kl": "reward model"})),
        ),
        Panel(
            name="steps", title="Steps of an episode", lines=tuple(known_lines(rows, {"mean_steps": "training tasks"}))
        ),
        Panel(
            name="probe",
            title="The reward model on the frozen probe",
            lines=tuple(known_lines(summary.evaluations, {"probe_balanced": "balanced"}, times=100)),
            unit="%",
            level=50.0,
        ),
        *followed_panels(summary),
        Panel(name="seconds", title="Seconds by stage", lines=tuple(second_lines(summary)), unit="s", stacked=True),
    ]
    return [panel for panel in found if panel.lines]


def followed_panels(summary: RunSummary) -> Iterator[Panel]:
    """Of the figures that packages bring, shares last, on training tasks and on every held-out split."""
    for figure in sorted(followed_figures(), key=lambda one: one.share):
        if figure.panel:
            times = 100.0 if figure.share else 1.0
            lines = list(known_lines(summary.iterations, {figure.key: "training tasks"}, times=times))
            for found in titled_splits(summary):
                label = f"held out: {found.split}" if found.split else "held out"
                lines += known_lines(found.evaluations, {figure.key: label}, times=times)
            name, unit = figure.key.replace("_", "-"), "%" if figure.share else ""
            yield Panel(name=name, title=figure.panel, lines=tuple(lines), unit=unit)


def success_lines(summary: RunSummary) -> Iterator[Line]:
    """Of every held-out split with its interval, and of the tasks that were trained on."""
    for found in titled_splits(summary):
        label = f"held out: {found.split}" if found.split else "held out"
        yield from known_lines(found.evaluations, {"success": label}, times=100)
    yield from known_lines(summary.iterations, {"success": "training tasks"}, times=100)


def known_lines(rows: Sequence[Row], keys: Mapping[str, str], *, times: float = 1.0) -> Iterator[Line]:
    """One line for each key that some row has."""
    for key, label in keys.items():
        known = [row for row in rows if row.get(key) is not None]
        if known:
            yield line(known, key, label, times=times)


def line(rows: Sequence[Row], key: str, label: str, *, times: float) -> Line:
    bounded = all(row.get(f"{key}_{end}") is not None for row in rows for end in ("low", "high"))
    low, high = (tuple(times * row[f"{key}_{end}"] for row in rows if bounded) for end in ("low", "high"))
    return Line(
        label=label,
        x=tuple(row["iteration"] for row in rows),
        y=tuple(times * row[key] for row in rows),
        low=low,
        high=high,
    )


def second_lines(summary: RunSummary) -> Iterator[Line]:
    iterations = tuple(row["iteration"] for row in summary.iterations)
    for stage in LOOP:
        seconds = tuple(summary.seconds.get((iteration, stage), 0.0) for iteration in iterations)
        if any(seconds):
            yield Line(label=stage, x=iterations, y=seconds)


def write_curves(folder: Path, drawn: Sequence[Panel]) -> None:
    """`<name>.svg` of each panel: pictures that `dvc plots` shows without a script from elsewhere."""
    for panel in drawn:
        write_text(folder / f"{panel.name}.svg", svg(panel))


@cache
def svg(panel: Panel) -> str:
    """One panel as an <svg> element; page and picture share it."""
    return rendered(lambda axes: draw_panel(axes, panel))


def draw_panel(axes: Any, panel: Panel) -> None:
    if panel.stacked:
        axes.stackplot(panel.lines[0].x, [one.y for one in panel.lines], labels=[one.label for one in panel.lines])
    for number, one in enumerate(() if panel.stacked else panel.lines):
        axes.plot(one.x, one.y, marker="o", markersize=3, label=one.label, color=f"C{number}")
        if one.low:
            axes.fill_between(one.x, one.low, one.high, alpha=0.15, color=f"C{number}", linewidth=0)
    if panel.level is not None:
        axes.axhline(panel.level, color="0.5", linewidth=0.8, linestyle="--")
    axes.set(xlabel="iteration", ylabel=panel.unit)
    if len(panel.lines) > 1:
        for said in axes.legend(fontsize=7, frameon=False).get_texts():
            said.set_parse_math(False)  # a label may hold dollar signs


def rendered(draw: Callable[[Any], None], *, size: tuple[float, float] = (WIDTH, HEIGHT)) -> str:
    """What `draw` draws on axes, as an <svg> element without the head of an XML file. `size`: in inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        draw(axes)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = stream.getvalue()
    return text[text.index("<svg") :]
