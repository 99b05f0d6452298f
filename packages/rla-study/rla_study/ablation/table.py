"""The table of an ablation: each arm's success and gain, and the behaviour of the reward model and the tasks.

All intervals are 95% bootstrap intervals over seeds and tasks (`rla_study.metrics.bootstrap`). An arm is read at the
last iteration at which all of its seeds were evaluated, or at requested iterations, whose mean is its success. The
table marks arms that are behind the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rla.errors import UserError
from rla.metrics.intervals import Interval
from rla.report.tables import ABSENT, Table, joined_title, number, percent
from rla_study.ablation.accepted import changes_tasks
from rla_study.ablation.outcomes import ArmOutcome, against_text, compared_with, held_out_names, on_split, paired_seeds
from rla_study.metrics import bootstrap

COLUMNS: tuple[str, ...] = ("arm", "seeds", "iteration", "warm start", "success", "95% interval", "per seed", "gain")
COLUMNS += ("over the baseline", "mu", "process accuracy", "balanced", "outcome accuracy", "accepted tasks")


OF_SPLIT = COLUMNS.index("over the baseline") + 1  # columns that a further held-out split has as well


def ablation_tables(arms: Sequence[ArmOutcome], *, baseline: str, at: Sequence[int] = ()) -> list[Table]:
    """The table of all arms. With several held-out splits each further one has a table too, with success only."""
    main, splits = arms_table(arms, baseline=baseline, at=at), held_out_names(arms)
    if not splits:
        return [main]
    name = next((run.split for found in arms for run in found.runs if run.split), "")
    made = [replace(main, title=joined_title(main.title, name))]
    for split in splits:
        found = arms_table([on_split(arm, split) for arm in arms], baseline=baseline, at=at)
        rows = tuple(row[:OF_SPLIT] for row in found.rows)
        note = f"the same on the held-out split {split}"
        made.append(Table(title=joined_title("Ablation", split), columns=COLUMNS[:OF_SPLIT], rows=rows, note=note))
    return made


def arms_table(arms: Sequence[ArmOutcome], *, baseline: str, at: Sequence[int] = ()) -> Table:
    """One line per evaluated arm. `baseline` names the arm that the others are compared with. Columns of the judge and
    of changed tasks are left out if they are empty for all arms.

    `at`: the iterations to read all arms at; arms that were not evaluated at each of these are left out.
    """
    points = [(found, tuple(sorted(set(at))) or found.shared_points[-1:]) for found in arms if found.shared_points]
    lines = tuple(
        _arm_line(found, compared_with(found, arms, baseline), read) for found, read in points if evaluated(found, read)
    )
    note = (
        "success on all held-out tasks at the sampling temperature; intervals: bootstrap over seeds and tasks, for the "
        "warm starts that were made (too narrow of three or four seeds; seed by seed decides); gain: over the warm "
        "start; differences are paired by task, and by seed where each has a start of its own; "
        f"baseline: {baseline}, where no other arm is named"
    )
    columns, rows = _told_columns(lines)
    if any(name in columns for name in COLUMNS[OF_SPLIT:-1]):
        note += "; mu and accuracies: of each seed's last iterations"
    if "balanced" in columns:
        note += "; balanced: process accuracy with good and bad steps weighted alike"
    return Table(title="Ablation", columns=columns, rows=rows, note=note)


def _told_columns(lines: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The columns and rows without those columns behind `OF_SPLIT` that are empty."""
    places = [p for p in range(len(COLUMNS)) if p < OF_SPLIT or any(line[p] != ABSENT for line in lines)]
    return tuple(COLUMNS[p] for p in places), tuple(tuple(line[p] for p in places) for line in lines)


def evaluated(found: ArmOutcome, read: Sequence[int]) -> bool:
    """Whether all seeds of an arm were evaluated at every one of these iterations."""
    return set(read) <= set(found.shared_points)


def _arm_line(found: ArmOutcome, against: ArmOutcome | None, read: Sequence[int]) -> tuple[str, ...]:
    """`read`: the iterations to average success over; diagnostics are taken at the last of them."""
    after, last = arm_sample(found, read), read[-1]
    reached = bootstrap.seed_mean(after)
    start = gain = over = ABSENT
    if 0 in found.shared_points:
        start = percent(float(arm_sample(found, [0]).mean()))
        gain = points(_paired_difference((found, read), (found, [0])))
    # arms with tasks of their own may share none with the other arm
    if against and evaluated(against, read) and shared_tasks(found, read) & shared_tasks(against, read):
        over = against_text(found, points(_paired_difference((found, read), (against, read))))
    return (
        found.arm.title,
        str(len(found.runs)),
        " ".join(map(str, read)),
        start,
        percent(reached.estimate),
        f"{100 * reached.low:.1f}-{100 * reached.high:.1f}%",
        " ".join(f"{100 * rate:.1f}" for rate in after.mean(axis=1)),
        gain,
        over,
        number(average(found, "mu", last), 2),
        percent(average(found, "rm_process_accuracy", last)),
        percent(average(found, "rm_process_balanced", last)),
        percent(average(found, "rm_outcome_accuracy", last)),
        number(_accepted_tasks(found, last), 1),
    )


def _accepted_tasks(found: ArmOutcome, until: int) -> float | None:
    """Accepted tasks per seed on average; None if no task was ever proposed."""
    if not changes_tasks(found, until):
        return None
    return sum(run.total("accepted", until=until) for run in found.runs) / len(found.runs)


Read = tuple[ArmOutcome, Sequence[int]]  # an arm, and the iterations at which it is read


def _paired_difference(after: Read, before: Read) -> Interval:
    """Success of `after` minus success of `before`, on the tasks that both have, paired by seed if possible."""
    tasks = shared_tasks(*after) & shared_tasks(*before)
    paired = paired_seeds(after[0], before[0])
    difference = bootstrap.seed_by_seed_difference if paired else bootstrap.seed_difference
    return difference(arm_sample(*after, tasks), arm_sample(*before, tasks))


def shared_tasks(found: ArmOutcome, read: Sequence[int]) -> set[str]:
    """The tasks that every seed has at each of these iterations: a task is missing if the environment broke all its
    episodes.

    Raises UserError if there are none.
    """
    tasks = set.intersection(*(set(run.evaluations[point]) for run in found.runs for point in read))
    if not tasks:
        raise UserError(f"arm {found.arm.name}: no task was played by all seeds; evaluate the same held-out tasks")
    return tasks


def arm_sample(found: ArmOutcome, read: Sequence[int], tasks: set[str] | None = None) -> bootstrap.Rates:
    """Success by seed and task, averaged over these iterations, for `tasks` or all tasks that every seed has."""
    kept = sorted(shared_tasks(found, read) if tasks is None else tasks)
    rates = [bootstrap.rates([{g: run.evaluations[p][g] for g in kept} for run in found.runs]) for p in read]
    return np.asarray(np.mean(rates, axis=0))


def average(found: ArmOutcome, key: str, until: int) -> float | None:
    """The mean over seeds of `key` up to an iteration; None if no seed has it."""
    values = [value for run in found.runs if (value := run.mean(key, until=until)) is not None]
    return sum(values) / len(values) if values else None


def points(gained: Interval) -> str:
    return f"{100 * gained.estimate:+.1f} [{100 * gained.low:+.1f}, {100 * gained.high:+.1f}]"
