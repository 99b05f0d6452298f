"""A run over its iterations: as JSON for programs and DVC, as points for trackers, and as curves (SVG)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.errors import UserError
from rla.metrics.custom import brought, brought_numbers, followed_figures
from rla.report.collect import Row, RunSummary, evaluation_rows, iteration_row, seconds_of, titled_splits
from rla.report.tables import LOOP, edit_counts
from rla.store.layout import artifact, further_splits, numbered_folders
from rla.tracking import CurvePoint


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


# tag of a tracker -> key of an iteration's figures
TAGS = {
    "success/training": "success",
    "reward/mean": "reward_mean",
    "judge/mu": "mu",
    "judge/right about steps": "rm_process_balanced",
    "judge/right about outcomes": "rm_outcome_accuracy",
    "tasks/accepted so far": "accepted_total",
    "tasks/one-sided": "one_sided_tasks",
    "episodes/steps": "mean_steps",
}


def run_points(run: Path, config: Config | None = None) -> list[CurvePoint]:
    """A point for each iteration, with the tables of packages if `config` is given, for each evaluation, and for each
    iteration whose stages are all timed. Raises UserError for a file that is not JSON.
    """
    points, followed = [], {figure.tag: figure.key for figure in followed_figures() if figure.tag}

    def add(kind: str, at: int, values: Mapping[str, Any]) -> None:
        known = {tag: float(value) for tag, value in values.items() if value is not None}
        more = [partial(one.tracked, run, config, at) for one in brought("tracked") if config and kind == "iteration"]
        points.append(CurvePoint(kind=kind, iteration=at, values=known, tables=more))

    for number in numbered_folders(run):
        if number > 0 and artifact(run, "metrics", number).exists():
            row = iteration_row(run, number)
            add("iteration", number, {tag: row.get(key) for tag, key in (TAGS | followed).items()})
    for root in (run, *further_splits(run).values()):
        for row in evaluation_rows(root):
            if row.get("success") is not None:
                split = row.get("split") or "held out"
                values = {f"success/{split}": row["success"], f"episodes/steps on {split}": row.get("mean_steps")}
                values |= {f"{name}/{split}": value for name, value in brought_numbers(row).items()}
                values |= {f"{tag} on {split}": row.get(key) for tag, key in followed.items()}
                add(f"evaluation on {split}", row["iteration"], values)
    spent: dict[tuple[int, str], float] = {}
    with suppress(UserError):  # a damaged record of times takes no other curve along
        spent = seconds_of(run)
    for number in sorted({iteration for iteration, _ in spent}):
        seconds = {f"seconds/{stage}": spent.get((number, stage)) for stage in LOOP}
        if None not in seconds.values():
            add("seconds", number, seconds)
    return points


WIDTH, HEIGHT = 5.2, 3.0  # inches
# Text stays text, and equal figures have equal ids, so that a page that is written again is the same file.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "rla", "font.size": 9, "axes.spines.top": False}
STYLE |= {"axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}


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


def rendered(draw: Callable[[Any], None], *, size: tuple[float, float] = (WIDTH, HEIGHT)) -> str:
    """Call `draw` with the axes of a figure; the figure as an <svg> element. `size`: in inches."""
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
