"""Curves of several runs in one plot. An arm with several seeds is drawn as their mean and range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rla.report.collect import Row
from rla.report.curves import Line, Panel, known_lines
from rla.report.tables import joined_title
from rla_study.comparing.runs import ComparedArm, ComparedRun


def comparison_panels(arms: Sequence[ComparedArm], splits: Sequence[str]) -> list[Panel]:
    """Every panel that has a point to draw."""
    found = [
        Panel(
            name=f"held-out-{split}" if len(splits) > 1 else "held-out",
            title=joined_title("Held-out success", split if len(splits) > 1 else ""),
            lines=tuple(line for arm in arms for line in _arm_lines(arm, _evaluation_rows_of(arm, split), "success")),
            unit="%",
        )
        for split in splits
    ]
    per_iteration: list[tuple[str, str, str, float, dict[str, Any]]] = [
        ("success", "Success on training tasks", "success", 100, {"unit": "%"}),
        ("mu", "mu: the reward model helps above 1", "mu", 1, {"level": 1.0}),
        ("judge", "The reward model is right about steps", "rm_process_balanced", 100, {"unit": "%", "level": 50.0}),
        ("accepted-tasks", "Accepted tasks so far", "accepted_total", 1, {}),
    ]
    for name, title, key, times, form in per_iteration:
        rows = [[run.summary.iterations for run in arm.runs] for arm in arms]
        lines = [line for arm, one in zip(arms, rows, strict=True) for line in _arm_lines(arm, one, key, times=times)]
        found.append(Panel(name=name, title=title, lines=tuple(lines), **form))
    return [panel for panel in found if panel.lines]


def _arm_lines(arm: ComparedArm, rows: Sequence[Sequence[Row]], key: str, *, times: float = 100) -> Iterator[Line]:
    """One line, or none if there is no data; `rows`: of each run."""
    # a legend leaves out names with a leading underscore
    label = f" {arm.name}" if arm.name.startswith("_") else arm.name
    yield from known_lines(rows[0] if len(rows) == 1 else list(_mean_rows(rows, key)), {key: label}, times=times)


def _mean_rows(rows: Sequence[Sequence[Row]], key: str) -> Iterator[Row]:
    """Rows of the iterations at which every run has `key`: its mean, with the minimum and maximum as bounds."""
    known = [{row["iteration"]: row[key] for row in one if row.get(key) is not None} for one in rows]
    for iteration in sorted(set.intersection(*map(set, known))):
        values = [one[iteration] for one in known]
        bounds = {f"{key}_low": min(values), f"{key}_high": max(values)}
        yield {"iteration": iteration, key: sum(values) / len(values), **bounds}


def _evaluation_rows_of(arm: ComparedArm, split: str) -> list[Sequence[Row]]:
    return [_run_evaluations(run, split) for run in arm.runs]


def _run_evaluations(run: ComparedRun, split: str) -> Sequence[Row]:
    """Rows of the metrics of the run's evaluations on a split."""
    by_split: Mapping[str, Sequence[Row]] = {
        found.split or run.outcome.split: found.evaluations for found in run.summary.held_out
    }
    return by_split.get(split, ())
