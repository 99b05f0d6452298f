"""The metrics that a design names (`measures`): a table for each, with intervals over seeds.

If the evaluation on the main held-out split has a measure as a number (`avg@8`, `tool_calls`), it is read from there.
Otherwise it is read from the metrics of the iterations (`policy_entropy`, from the policy's training) and averaged over
the last iterations up to the one at which the arm is read. Nested metrics have dots in their names,
`by_kind.aime.success`. There is one number per seed, so the intervals are Student's t over seeds alone
(`rla_study.metrics.student`): they include neither the sampling of tasks nor of a start that the seeds share. A single
seed has no interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rla.config.schema import flattened
from rla.metrics.intervals import Interval
from rla.report.tables import ABSENT, Table
from rla_study.ablation.outcomes import LAST, ArmOutcome, RunOutcome, against_text, compared_with, paired_seeds
from rla_study.metrics import student
from rla_study.tracking import brought_numbers

MEASURE_COLUMNS: tuple[str, ...] = (
    "arm",
    "seeds",
    "warm start",
    "over the baseline's",
    "iteration",
    "value",
    "95% interval",
)
MEASURE_COLUMNS += ("per seed", "over the baseline")
DIGITS = 4  # significant digits shown


def measure_tables(
    arms: Sequence[ArmOutcome], measures: Sequence[str], *, baseline: str, at: Sequence[int] = ()
) -> list[Table]:
    """One table per measure, one line per arm. Arms that were not evaluated at each of `at` are left out."""
    return [measure_table(arms, name, baseline=baseline, at=at) for name in measures]


def measure_table(arms: Sequence[ArmOutcome], measure: str, *, baseline: str, at: Sequence[int] = ()) -> Table:
    """`at`: the iterations to read all arms at; if empty, the last that all seeds of an arm have."""
    wanted = sorted(set(at))
    points = [(found, wanted or found.shared_points[-1:]) for found in arms if found.shared_points]
    lines = [
        _measure_line(found, compared_with(found, arms, baseline), measure, read)
        for found, read in points
        if set(read) <= set(found.shared_points)
    ]
    note = (
        "mean over seeds; intervals: Student's t over seeds alone; differences are paired by seed where each has a "
        f"start of its own; baseline: {baseline}, where no other arm is named"
    )
    if all(line[5] == ABSENT and line[2] == ABSENT for line in lines):
        note = "no evaluation and no iteration of any arm has this metric"
    return Table(title=f"Ablation: {measure}", columns=MEASURE_COLUMNS, rows=tuple(lines), note=note)


def _measure_line(found: ArmOutcome, against: ArmOutcome | None, measure: str, read: Sequence[int]) -> tuple[str, ...]:
    values, start = _seed_values(found, measure, read), _seed_values(found, measure, [0])
    paired = against is not None and paired_seeds(found, against)
    return (
        found.arm.title,
        str(len(found.runs)),
        _mean_text(start),
        against_text(found, _difference_text(start, _seed_values(against, measure, [0]), paired=paired)),
        " ".join(map(str, read)),
        _mean_text(values),
        bracketed(student.mean_of_seeds(values)) if len(values) > 1 else ABSENT,
        " ".join(map(shown_measure, values)) or ABSENT,
        against_text(found, _difference_text(values, _seed_values(against, measure, read), paired=paired)),
    )


def _seed_values(found: ArmOutcome | None, measure: str, read: Sequence[int]) -> list[float]:
    """The measure for every seed, averaged over the iterations `read`; empty if a seed lacks it at one of them."""
    runs = found.runs if found is not None else ()
    rows = [[measured(run, measure, point) for point in read] for run in runs]
    whole = [[value for value in row if value is not None] for row in rows]
    if not rows or any(len(row) < len(read) for row in whole):
        return []
    return [sum(row) / len(row) for row in whole]


def measured(run: RunOutcome, measure: str, point: int) -> float | None:
    """The measure at one iteration: from its evaluation, or from the last iterations up to it."""
    known = measured_series(run, measure)
    if measure in _evaluated_measures(run):
        return known.get(point)
    last = [known[step] for step in sorted(known) if step <= point][-LAST:]
    return sum(last) / len(last) if last else None


def measured_series(run: RunOutcome, measure: str) -> dict[int, float]:
    """The measure by iteration: from the evaluations if they have it, else from the iterations."""
    rows = {row["iteration"]: row for row in run.iterations}
    if measure in _evaluated_measures(run):
        rows = dict(run.measured)
    found = {point: numbers_of(row) for point, row in rows.items()}
    return {point: numbers[measure] for point, numbers in found.items() if measure in numbers}


def _evaluated_measures(run: RunOutcome) -> set[str]:
    """Names of the numbers that some evaluation of the run has."""
    return {name for row in run.measured.values() for name in numbers_of(row)}


def numbers_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in `row` by name, with dots for nesting. `pass@8` is only the estimate."""
    found = flattened(row) | brought_numbers(row)
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def _mean_text(values: Sequence[float]) -> str:
    return shown_measure(sum(values) / len(values)) if values else ABSENT


def _difference_text(values: Sequence[float], baseline: Sequence[float], *, paired: bool = False) -> str:
    """`+0.12 [+0.05, +0.2]`, without the interval if an arm has only one seed. `paired`: pair the values by seed."""
    if not values or not baseline:
        return ABSENT
    estimate = _without_rounding(sum(values) / len(values) - sum(baseline) / len(baseline))
    if min(len(values), len(baseline)) == 1:
        return f"{estimate:+.{DIGITS}g}"
    if paired:
        found = student.mean_of_seeds([value - other for value, other in zip(values, baseline, strict=True)])
    else:
        found = student.difference_of_seeds(values, baseline)
    return f"{estimate:+.{DIGITS}g} {bracketed(found, sign='+')}"


def bracketed(found: Interval, *, sign: str = "") -> str:
    return f"[{_without_rounding(found.low):{sign}.{DIGITS}g}, {_without_rounding(found.high):{sign}.{DIGITS}g}]"


def shown_measure(value: float) -> str:
    return f"{_without_rounding(value):.{DIGITS}g}"


def _without_rounding(value: float) -> float:
    """The value without the rounding errors that depend on the order of a sum."""
    return round(value, 12) + 0.0  # avoids -0
