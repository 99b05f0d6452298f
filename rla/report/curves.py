"""A run over its iterations: as JSON for programs and DVC, as points for trackers, and as curves (SVG)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rla.metrics.custom import brought_numbers, followed_figures
from rla.metrics.intervals import Interval
from rla.report.collect import Row, RunSummary, iteration_row, json_or_empty, recorded_calls, seconds_of, titled_splits
from rla.report.tables import LOOP, edit_counts
from rla.store.atomic import write_text
from rla.store.layout import artifact, further_splits, numbered_folders
from rla.tracking import CurvePoint

HISTORY: tuple[str, ...] = (
    *("success", "mean_steps", "rm_outcome_accuracy", "p_plus", "p_minus", "mu", "theorem1_bound", "self_agreement"),
    *("unparsable_votes", "labelled_steps", "unlabelled_episodes", "good_steps", "closer_steps", "label_mu"),
    *("distance_covered", "distance_covered_lost", "importance_ratio_median", "importance_ratio_p90"),
    *("importance_ratio_max", "one_sided_tasks", "accepted", "rejected", "reward_mean", "step_weight"),
)
PROBE = ("probe_balanced", "probe_mu")  # of an evaluation: `rla.metrics.process`
AGAINST_FACT = ("votes", "accuracy", "low", "high", "good", "bad", "balanced", "majority", "won", "lost")
HISTORY += tuple(f"rm_{truth}_{figure}" for truth in ("process", "distance") for figure in AGAINST_FACT)
HISTORY += ("accepted_total", "accepted_harder", "accepted_easier", "returned", "tasks_proposed", "tasks_valid")
HISTORY += ("expert_success", "root_expert_success")
TRAINING = ("policy_kl", "policy_approx_kl", "policy_entropy", "rm_kl", "rm_approx_kl", "rm_entropy")


def report_figures(summary: RunSummary) -> dict[str, Any]:
    """File name -> JSON.

    - `history.json`: one row per iteration. All rows have the same keys, as readers of tables expect; unknown values
      are null.
    - `evaluations.json`: one row per evaluation. `success` is of the main held-out split, `success_<split>` of another.
    - `metrics.json`: the columns of `dvc metrics show` and `dvc exp show`. Unknown ones are left out.
    - `report.json`: everything.
    """
    keys = (*HISTORY, *(figure.key for figure in followed_figures()), *TRAINING)
    history = [{"iteration": row["iteration"], **{key: row.get(key) for key in keys}} for row in summary.iterations]
    further = {
        found.split: {row["iteration"]: row["success"] for row in found.evaluations} for found in summary.further
    }
    probed = any(row.get(PROBE[0]) is not None for row in summary.evaluations)
    evaluations = [
        {"iteration": row["iteration"], "success": row["success"]}
        | {key: row.get(key) for key in PROBE if probed}
        | {f"success_{split}": rates.get(row["iteration"]) for split, rates in further.items()}
        for row in summary.evaluations
    ]
    gain = _gain(summary.gain) or {}
    metrics = {
        "held_out": summary.evaluations[-1]["success"] if summary.evaluations else None,
        "gain": gain.get("estimate"),
        "gain_low": gain.get("low"),
        "gain_high": gain.get("high"),
        "mu": _latest(summary, "mu"),
        "judge_balanced": _latest(summary, "rm_process_balanced"),
        "accepted": _latest(summary, "accepted_total"),
        "hours": round(sum(summary.seconds.values()) / 3600, 3),
    }
    splits = {one.split: {"evaluations": list(one.evaluations), "gain": _gain(one.gain)} for one in summary.further}
    report = {
        "iterations": list(summary.iterations),
        "evaluations": list(summary.evaluations),
        "edits": edit_counts(summary),
        "gain": _gain(summary.gain),
        **({"further_splits": splits} if splits else {}),
        "seconds": [
            {"iteration": iteration, "stage": stage, "seconds": value}
            for (iteration, stage), value in sorted(summary.seconds.items())
        ],
    }
    return {
        "history.json": history,
        "evaluations.json": evaluations,
        "metrics.json": {key: value for key, value in metrics.items() if value is not None},
        "report.json": report,
    }


def _latest(summary: RunSummary, key: str) -> float | None:
    """The value of the last iteration that has one."""
    return next((row[key] for row in reversed(summary.iterations) if row.get(key) is not None), None)


def _gain(gain: Interval | None) -> dict[str, float] | None:
    return {"estimate": gain.estimate, "low": gain.low, "high": gain.high} if gain else None


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


def run_points(run: Path) -> list[CurvePoint]:
    """A point for each iteration, for each evaluation, and for each iteration whose stages are all timed. Raises
    UserError for a file that is not JSON.
    """
    points, followed = [], {figure.tag: figure.key for figure in followed_figures() if figure.tag}

    def add(kind: str, iteration: int, values: Mapping[str, Any], when: float) -> None:
        known = {tag: float(value) for tag, value in values.items() if value is not None}
        points.append(CurvePoint(kind=kind, iteration=iteration, values=known, when=when))

    for number in numbered_folders(run):
        file = artifact(run, "metrics", number)
        if number > 0 and file.exists():
            row = iteration_row(run, number)
            tags = TAGS | followed
            add("iteration", number, {tag: row.get(key) for tag, key in tags.items()}, file.stat().st_mtime)
    for root in (run, *further_splits(run).values()):
        for number in numbered_folders(root / "eval"):
            file = artifact(root, "eval_metrics", number)
            row = json_or_empty(file)
            if row.get("success") is not None:
                split = row.get("split") or "held out"
                values = {f"success/{split}": row["success"], f"episodes/steps on {split}": row.get("mean_steps")}
                values |= {f"{name}/{split}": value for name, value in brought_numbers(row).items()}
                values |= {f"{tag} on {split}": row.get(key) for tag, key in followed.items()}
                add(f"evaluation on {split}", number, values, file.stat().st_mtime)
    spent, ended = seconds_of(run, strict=False), dict[int, float]()
    for calls in recorded_calls(run, strict=False):
        end = calls[-1].started + calls[-1].seconds
        ended[calls[0].iteration] = max(ended.get(calls[0].iteration, 0.0), end)
    for number, when in sorted(ended.items()):
        seconds = {f"seconds/{stage}": spent.get((number, stage)) for stage in LOOP}
        if None not in seconds.values():
            add("seconds", number, seconds, when)
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
    """`name`: of its file. `level`: the height of a dashed line, such as chance. `stacked`: the lines are parts of a
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
    iterations = tuple(row["iteration"] for row in rows)
    spent = {stage: tuple(summary.seconds.get((number, stage), 0.0) for number in iterations) for stage in LOOP}

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
        Panel(
            name="seconds",
            title="Seconds by stage",
            lines=tuple(Line(label=stage, x=iterations, y=seconds) for stage, seconds in spent.items() if any(seconds)),
            unit="s",
            stacked=True,
        ),
    ]
    return [one for one in found if one.lines]


def _followed_panels(summary: RunSummary) -> Iterator[Panel]:
    """The figures that packages register: shares last."""
    for figure in sorted(followed_figures(), key=lambda one: one.share):
        if figure.panel:
            lines = tuple(
                _on_all_splits(summary, figure.key, times=100.0 if figure.share else 1.0, training_first=True)
            )
            name, unit = figure.key.replace("_", "-"), "%" if figure.share else ""
            yield Panel(name=name, title=figure.panel, lines=lines, unit=unit)


def _on_all_splits(summary: RunSummary, key: str, *, times: float, training_first: bool = False) -> Iterator[Line]:
    """The figure on every held-out split and on training tasks."""
    training = list(known_lines(summary.iterations, {key: "training tasks"}, times=times))
    yield from training if training_first else ()
    for found in titled_splits(summary):
        label = f"held out: {found.split}" if found.split else "held out"
        yield from known_lines(found.evaluations, {key: label}, times=times)
    yield from () if training_first else training


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


def write_curves(folder: Path, drawn: Sequence[Panel]) -> None:
    """Write `<name>.svg` of each panel, which `dvc plots` shows without loading a script from the network."""
    for panel in drawn:
        write_text(folder / f"{panel.name}.svg", svg(panel))


@cache
def svg(panel: Panel) -> str:
    """One panel as an <svg> element, for the page and for the file."""

    def draw(axes: Any) -> None:
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
