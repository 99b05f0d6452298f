"""What trackers show of a run: one point for each iteration, evaluation, and iteration whose stages are all timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rla.metrics.custom import brought_numbers, followed_figures
from rla.pipeline.timings import calls_of
from rla.report.collect import iteration_row, json_or_empty
from rla.report.tables import LOOP
from rla.store.layout import artifact, further_splits, numbered_folders
from rla.tracking.run_curves import CurvePoint

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
