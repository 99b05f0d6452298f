"""Series over iterations, the few figures of a run that DVC compares, everything that is known, as JSON, and the points
that trackers show: one for each iteration, evaluation, and iteration whose stages are all timed.

The curves of a run as SVG texts: what it did over iterations, with intervals where they are known.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rla.metrics.custom import brought_numbers, followed_figures
from rla.metrics.intervals import Interval
from rla.pipeline.finished import calls_of
from rla.report.collect import Row, RunSummary, iteration_row, json_or_empty, titled_splits
from rla.report.tables import LOOP, edit_counts
from rla.store.atomic import write_text
from rla.store.layout import artifact, further_splits, numbered_folders
from rla.tracking.run_curves import CurvePoint

HISTORY: tuple[str, ...] = (
    "success",
    "mean_steps",
    "rm_outcome_accuracy",
    "p_plus",
    "p_minus",
    "mu",
    "theorem1_bound",
    "self_agreement",
    "unparsable_votes",
    "labelled_steps",
    "unlabelled_episodes",
    "good_steps",
    "closer_steps",
    "label_mu",
    "distance_covered",
    "distance_covered_lost",
    "importance_ratio_median",
    "importance_ratio_p90",
    "importance_ratio_max",
    "one_sided_tasks",
    "accepted",
    "rejected",
    "reward_mean",
    "step_weight",
)
PROBE = ("probe_balanced", "probe_mu")  # of an evaluation: `rla.metrics.process`
AGAINST_FACT = ("votes", "accuracy", "low", "high", "good", "bad", "balanced", "majority", "won", "lost")
HISTORY += tuple(f"rm_{truth}_{figure}" for truth in ("process", "distance") for figure in AGAINST_FACT)
HISTORY += ("accepted_total", "accepted_harder", "accepted_easier", "returned", "tasks_proposed", "tasks_valid")
HISTORY += ("expert_success", "root_expert_success")
TRAINING = ("policy_kl", "policy_approx_kl", "policy_entropy", "rm_kl", "rm_approx_kl", "rm_entropy")


def history_rows(summary: RunSummary) -> list[dict[str, Any]]:
    """One row per iteration with all series, null where it has none: readers of tables want equal keys."""
    keys = (*HISTORY, *(figure.key for figure in followed_figures()), *TRAINING)
    return [{"iteration": row["iteration"], **{key: row.get(key) for key in keys}} for row in summary.iterations]


def evaluation_rows(summary: RunSummary) -> list[dict[str, Any]]:
    """One row per evaluation: `success` on the main held-out split, `success_<split>` on every other, null without;
    where a reward model was measured on the frozen probe also `PROBE`.
    """
    further = {
        found.split: {row["iteration"]: row["success"] for row in found.evaluations} for found in summary.further
    }
    probed = any(row.get(PROBE[0]) is not None for row in summary.evaluations)
    return [
        {"iteration": row["iteration"], "success": row["success"]}
        | {key: row.get(key) for key in PROBE if probed}
        | {f"success_{split}": rates.get(row["iteration"]) for split, rates in further.items()}
        for row in summary.evaluations
    ]


def run_metrics(summary: RunSummary) -> dict[str, float]:
    """What `dvc metrics show` and `dvc exp show` print of a run, eight columns at most; what is unknown is left out.

    Success of the last evaluation of the main held-out split, what it gained since the first one with the bounds of its
    95% interval; of the last iteration mu, how often the judge is right about good and bad steps, and how many changed
    tasks were accepted so far; hours of stages.
    """
    last = summary.evaluations[-1]["success"] if summary.evaluations else None
    gain = gain_json(summary.gain) or {}
    found = {
        "held_out": last,
        "gain": gain.get("estimate"),
        "gain_low": gain.get("low"),
        "gain_high": gain.get("high"),
        "mu": latest(summary, "mu"),
        "judge_balanced": latest(summary, "rm_process_balanced"),
        "accepted": latest(summary, "accepted_total"),
        "hours": round(sum(summary.seconds.values()) / 3600, 3),
    }
    return {key: value for key, value in found.items() if value is not None}


def latest(summary: RunSummary, key: str) -> float | None:
    """The value of the last iteration that has one."""
    return next((row[key] for row in reversed(summary.iterations) if row.get(key) is not None), None)


def gain_json(gain: Interval | None) -> dict[str, float] | None:
    return {"estimate": gain.estimate, "low": gain.low, "high": gain.high} if gain else None


def summary_json(summary: RunSummary) -> dict[str, Any]:
    further = {
        found.split: {"evaluations": list(found.evaluations), "gain": gain_json(found.gain)}
        for found in summary.further
    }
    return {
        "iterations": list(summary.iterations),
        "evaluations": list(summary.evaluations),
        "edits": edit_counts(summary),
        "gain": gain_json(summary.gain),
        **({"further_splits": further} if further else {}),
        "seconds": [
            {"iteration": iteration, "stage": stage, "seconds": value}
            for (iteration, stage), value in sorted(summary.seconds.items())
        ],
    }


# tag -> key of an iteration's figures
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
    """All that is known by now. Raises UserError for a file that is not JSON."""
    return [*iteration_points(run), *held_out_points(run), *second_points(run)]


def followed_tags() -> dict[str, str]:
    """Those of the figures that packages bring."""
    return {figure.tag: figure.key for figure in followed_figures() if figure.tag}


def iteration_points(run: Path) -> Iterator[CurvePoint]:
    tags = TAGS | followed_tags()
    for number in numbered_folders(run):
        file = artifact(run, "metrics", number)
        if number > 0 and file.exists():
            row = iteration_row(run, number)
            yield CurvePoint(
                kind="iteration",
                iteration=number,
                values=known_values({tag: row.get(key) for tag, key in tags.items()}),
                when=file.stat().st_mtime,
            )


def held_out_points(run: Path) -> Iterator[CurvePoint]:
    """Success on every held-out split, by its name, and what packages bring."""
    tags = followed_tags()
    for root in (run, *further_splits(run).values()):
        for number in numbered_folders(root / "eval"):
            file = artifact(root, "eval_metrics", number)
            row = json_or_empty(file)
            if row.get("success") is not None:
                split = row.get("split") or "held out"
                values = {f"success/{split}": row["success"], f"episodes/steps on {split}": row.get("mean_steps")}
                values |= {f"{name}/{split}": value for name, value in brought_numbers(row).items()}
                values |= {f"{tag} on {split}": row.get(key) for tag, key in tags.items()}
                yield CurvePoint(
                    kind=f"evaluation on {split}",
                    iteration=number,
                    values=known_values(values),
                    when=file.stat().st_mtime,
                )


def second_points(run: Path) -> Iterator[CurvePoint]:
    """Seconds by stage of the iterations of which all are known; slices run side by side, so the longest counts."""
    spent: dict[tuple[int, str], float] = {}
    ended: dict[int, float] = {}
    for file in sorted((run / "timings").glob("*.json")):
        calls = calls_of(file)
        if calls:
            key = (calls[0].iteration, calls[0].stage)
            spent[key] = max(spent.get(key, 0.0), sum(call.seconds for call in calls))
            ended[key[0]] = max(ended.get(key[0], 0.0), calls[-1].started + calls[-1].seconds)
    for number, when in sorted(ended.items()):
        found = {stage: spent.get((number, stage)) for stage in LOOP}
        if None not in found.values():
            values = known_values({f"seconds/{stage}": value for stage, value in found.items()})
            yield CurvePoint(kind="seconds", iteration=number, values=values, when=when)


def known_values(values: Mapping[str, Any]) -> dict[str, float]:
    return {tag: float(value) for tag, value in values.items() if value is not None}


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
