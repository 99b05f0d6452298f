"""A run over its iterations: as JSON for programs and DVC, and as curves (SVG)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from rla.metrics.custom import followed_figures
from rla.report.collect import Row, RunSummary, titled_splits
from rla.report.tables import edit_counts


def report_figures(summary: RunSummary) -> dict[str, Any]:
    """`report.json`: every figure of the iterations and of the evaluations on each held-out split, with its gain."""
    return {
        "iterations": list(summary.iterations),
        "held_out": [
            {"split": one.split, "evaluations": list(one.evaluations), "gain": one.gain and asdict(one.gain)}
            for one in summary.held_out
        ],
        "edits": edit_counts(summary),
        "seconds": [
            {"iteration": iteration, "stage": stage, "seconds": value}
            for (iteration, stage), value in sorted(summary.seconds.items())
        ],
    }


def compared_figures(summary: RunSummary) -> dict[str, float]:
    """`metrics.json`: the columns of `dvc metrics show` and `dvc exp show`. Unknown ones are left out."""
    gain = summary.gain
    last = {key: value for row in summary.iterations for key, value in row.items() if value is not None}
    found = {
        "held_out": summary.evaluations[-1]["success"] if summary.evaluations else None,
        "gain": gain.estimate if gain else None,
        "gain_low": gain.low if gain else None,
        "gain_high": gain.high if gain else None,
        "mu": last.get("mu"),
        "judge_balanced": last.get("rm_process_balanced"),
        "accepted": last.get("accepted_total"),
        "hours": round(sum(summary.seconds.values()) / 3600, 3),
    }
    return {key: value for key, value in found.items() if value is not None}


# Text stays text, and equal figures have equal ids, so that a page that is written again is the same file.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "rla", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False, "figure.subplot.left": 0.17}
STYLE |= {"figure.subplot.bottom": 0.15, "figure.subplot.right": 0.98}  # fitting margins takes as long as drawing


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`low`, `high`: bounds of an interval, one for each point, or empty."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`name`: of its file. `level`: the height of a dashed line, such as chance."""

    name: str
    title: str
    lines: tuple[Line, ...]
    unit: str = ""
    level: float | None = None


def panels(summary: RunSummary) -> list[Panel]:
    """Every panel that has a point to draw."""
    rows = summary.iterations

    def panel(name: str, title: str, keys: Mapping[str, str], rows: Sequence[Row] = rows, **settings: Any) -> Panel:
        times = 100.0 if settings.get("unit") == "%" else 1.0
        return Panel(name=name, title=title, lines=tuple(known_lines(rows, keys, times=times)), **settings)

    judge = {"rm_process_balanced": "balanced", "rm_outcome_accuracy": "outcome"}
    probe = {"probe_balanced": "balanced"}
    found = [
        Panel(name="success", title="Success", lines=tuple(_on_all_splits(summary, "success", times=100)), unit="%"),
        panel("mu", "mu: the reward model helps above 1", {"mu": "mu"}, level=1.0),
        panel("judge", "The reward model against fact", judge, unit="%", level=50.0),
        panel(
            "accepted-tasks", "Accepted tasks so far", {"accepted_total": "accepted", "adapted_slots": "slots changed"}
        ),
        panel("entropy", "Entropy", {"policy_entropy": "policy", "rm_entropy": "reward model"}),
        panel("kl", "KL of an update", {"policy_approx_kl": "policy", "rm_approx_kl": "reward model"}),
        panel("steps", "Steps of an episode", {"mean_steps": "training tasks"}),
        panel("probe", "The reward model on the frozen probe", probe, summary.evaluations, unit="%", level=50.0),
        *_followed_panels(summary),
    ]
    return [one for one in found if one.lines]


def _followed_panels(summary: RunSummary) -> Iterator[Panel]:
    """The figures that packages register: shares last."""
    for figure in sorted(followed_figures(), key=lambda one: one.share):
        if figure.panel:
            lines = tuple(_on_all_splits(summary, figure.key, times=100.0 if figure.share else 1.0))
            name, unit = figure.key.replace("_", "-"), "%" if figure.share else ""
            yield Panel(name=name, title=figure.panel, lines=lines, unit=unit)


def _on_all_splits(summary: RunSummary, key: str, *, times: float) -> Iterator[Line]:
    """The figure on every held-out split and on training tasks."""
    for found in titled_splits(summary):
        label = f"held out: {found.split}" if found.split else "held out"
        yield from known_lines(found.evaluations, {key: label}, times=times)
    yield from known_lines(summary.iterations, {key: "training tasks"}, times=times)


def known_lines(rows: Sequence[Row], keys: Mapping[str, str], *, times: float = 1.0) -> Iterator[Line]:
    """One line for each of `keys` that some row has, with the interval if all of these rows have one. `keys`: key ->
    label. `times`: a factor of all values.
    """
    for key, label in keys.items():
        known = [row for row in rows if row.get(key) is not None]
        bounded = all(row.get(f"{key}_{end}") is not None for row in known for end in ("low", "high"))
        low, high = (tuple(times * row[f"{key}_{end}"] for row in known if bounded) for end in ("low", "high"))
        if known:
            x, y = tuple(row["iteration"] for row in known), tuple(times * row[key] for row in known)
            yield Line(label=label, x=x, y=y, low=low, high=high)


@cache
def svg(panel: Panel) -> str:
    """One panel as an <svg> element, for the page and for a file, which `dvc plots` shows without loading a script."""

    def draw(axes: Any) -> None:
        for number, one in enumerate(panel.lines):
            axes.plot(one.x, one.y, marker="o", markersize=3, label=one.label, color=f"C{number}")
            if one.low:
                axes.fill_between(one.x, one.low, one.high, alpha=0.15, color=f"C{number}", linewidth=0)
        if panel.level is not None:
            axes.axhline(panel.level, color="0.5", linewidth=0.8, linestyle="--")
        axes.set(xlabel="iteration", ylabel=panel.unit)
        if len(panel.lines) > 1:
            for said in axes.legend(fontsize=7, frameon=False).get_texts():
                said.set_parse_math(False)  # a label may hold dollar signs

    return rendered(draw)


def rendered(draw: Callable[[Any], None], *, size: tuple[float, float] | None = None) -> str:
    """Call `draw` with the axes of a figure; the figure as an <svg> element. `size`: in inches, if not a panel's."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size or (5.2, 3.0), layout="constrained" if size else None)
        axes = figure.subplots()
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        draw(axes)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return "<svg" + stream.getvalue().partition("<svg")[2]
