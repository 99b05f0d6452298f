"""Accepted tasks over the iterations of each arm, and the share of them that an independent player wins.

In the paper's figure the number of accepted tasks rises in nearly a straight line. r2 measures how well ours fits one:
the regression of the accepted tasks so far on the iteration, averaged over seeds. The player is the environment's
expert (`HasExpert`), which does not learn. Its success on accepted tasks, their parents and their roots counts every
task alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from statistics import StatisticsError, correlation, fmean, linear_regression

from rla.report.tables import ABSENT, Table, number, percent
from rla_study.ablation.outcomes import ArmOutcome

PROPOSED = ("accepted", "rejected", "pending")  # metrics of an iteration that stay 0 if no task is ever changed
PLAYER = ("expert_success", "parent_expert_success", "root_expert_success")
ACCEPTED_COLUMNS: tuple[str, ...] = ("arm", "seeds", "judged", "accepted", "harder", "easier", "so far, by iteration")
ACCEPTED_COLUMNS += ("an iteration", "r2 of a line", "won by the player", "of their parents", "of their roots")
SHOWN = 4  # points of the course that the table shows

Course = tuple[list[int], list[float]]


def accepted_table(arms: Sequence[ArmOutcome], *, until: int | None = None) -> Table:
    """One line for each arm that changes tasks. `until`: the last iteration to count."""
    lines = [_accepted_line(found, until) for found in arms if changes_tasks(found, until)]
    note = (
        "means over seeds; judged: tasks that were played as pending ones; an iteration: the slope of the straight "
        "line through the accepted tasks so far; the player sees observations only and does not learn"
    )
    return Table(title="Accepted tasks", columns=ACCEPTED_COLUMNS, rows=tuple(lines), note=note)


def changes_tasks(found: ArmOutcome, until: int | None = None) -> bool:
    """Whether any task was ever proposed."""
    rows = [row for run in found.runs for row in run.iterations if until is None or row["iteration"] <= until]
    return any(row.get(key) for row in rows for key in PROPOSED)


def _accepted_line(found: ArmOutcome, until: int | None) -> tuple[str, ...]:
    steps, so_far = accepted_course(found, until)
    last = steps[-1] if steps else 0
    slope, fit = straight_line(steps, so_far)
    shown = sorted({len(steps) * part // SHOWN for part in range(1, SHOWN + 1)} - {0})
    course = ", ".join(f"{steps[place - 1]}: {so_far[place - 1]:.1f}" for place in shown)
    totals = [fmean(run.total(key, until=last) for run in found.runs) for key in ("pending", "accepted")]
    directions = [fmean(run.total(f"accepted_{way}", until=last) for run in found.runs) for way in ("harder", "easier")]
    return (
        found.arm.title,
        str(len(found.runs)),
        *(number(total, 1) for total in (*totals, *directions)),
        course or ABSENT,
        number(slope, 2),
        number(fit, 2),
        *(percent(won_share(found, key, last)) for key in PLAYER),
    )


def accepted_course(found: ArmOutcome, until: int | None = None) -> Course:
    """The iterations that every seed has, and the number of tasks accepted up to each, averaged over seeds."""
    rows = [{row["iteration"]: row.get("accepted") or 0 for row in run.iterations} for run in found.runs]
    shared = set.intersection(*map(set, rows)) if rows else set()
    steps = sorted(step for step in shared if until is None or step <= until)
    return steps, list(accumulate(fmean(row[step] for row in rows) for step in steps))


def straight_line(steps: Sequence[int], values: Sequence[float]) -> tuple[float | None, float | None]:
    """The slope of the regression line through the points, and the share of their variance that it explains."""
    try:
        return linear_regression(steps, values).slope, correlation(steps, values) ** 2
    except StatisticsError:  # fewer than two points, or all values equal
        return None, None


def won_share(found: ArmOutcome, key: str, until: int) -> float | None:
    """The player's success over all accepted tasks of all seeds; None if it played none."""
    rows = [row for run in found.runs for row in run.iterations if row["iteration"] <= until]
    known = [(row["accepted"], row[key]) for row in rows if row.get(key) is not None and row.get("accepted")]
    total = sum(count for count, _ in known)
    return sum(count * share for count, share in known) / total if total else None


def won_course(found: ArmOutcome) -> Course:
    """The iterations that accepted tasks in some seed, and the player's success on these tasks, in per cent."""
    by_step: dict[int, list[tuple[int, float]]] = {}
    for run in found.runs:
        for row in run.iterations:
            if row.get(PLAYER[0]) is not None and row.get("accepted"):
                by_step.setdefault(row["iteration"], []).append((row["accepted"], row[PLAYER[0]]))
    steps = sorted(by_step)
    counts = [sum(count for count, _ in by_step[step]) for step in steps]
    won = [sum(count * share for count, share in by_step[step]) for step in steps]
    return steps, [100 * part / count for part, count in zip(won, counts, strict=True)]
