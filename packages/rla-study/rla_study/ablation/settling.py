"""The pairs of arms that a design compares, seed by seed, and how many seeds would settle each comparison.

Equal seeds draw the same training games and begin with the same models, so a large part of a seed's effect is the same
in both arms and cancels in the difference. The interval is Student's t over seeds, with the variance between games
added (`rla_study.metrics.power`). Arms are compared on the seeds and the held-out tasks that both have.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from rla.report.tables import ABSENT, Table, joined_title, number
from rla_study.ablation.design import Design
from rla_study.ablation.outcomes import ArmOutcome, RunOutcome, held_out_names, on_split
from rla_study.metrics.power import FEWEST, difference_spread, rate_noise, seeds_to_settle
from rla_study.metrics.student import paired_interval

SETTLING_COLUMNS: tuple[str, ...] = ("arm", "over", "seeds", "iteration", "difference", "per seed", "apart")
SETTLING_COLUMNS += ("a seed's deviation", "of that, evaluation", "seeds to settle")
MORE = 4  # assumed in the last columns: times as many episodes of each game
SETTLING_COLUMNS += (f"with {MORE} x the episodes", "hours a seed", "hours to settle")
TITLE = "Seed by seed"


def settling_tables(arms: Sequence[ArmOutcome], design: Design, *, at: Sequence[int] = ()) -> list[Table]:
    """One table per held-out split, left out if no pair has two seeds in common."""
    splits = held_out_names(arms)
    main = next((run.split for found in arms for run in found.runs if run.split), "")
    tables = [_settling_table(arms, design, at=at, title=joined_title(TITLE, main if splits else ""))]
    for split in splits:
        there = [on_split(found, split) for found in arms]
        tables.append(_settling_table(there, design, at=at, title=joined_title(TITLE, split)))
    return [table for table in tables if table.rows]


def _settling_table(arms: Sequence[ArmOutcome], design: Design, *, at: Sequence[int], title: str) -> Table:
    """One line per pair. `at`: the iterations to read both arms at; if empty, the last that all their seeds have."""
    lines = (_settling_line(found, over, sorted(set(at))) for found, over in compared_arms(arms, design))
    note = (
        "difference of success, paired by seed and task, with a 95% interval by t over seeds, in which tasks are drawn "
        "too, and a start that seeds share is not; a seed's deviation: that of the difference, in points; of that, "
        "evaluation: what is left of it where nothing but the episodes of the evaluation varies; seeds to settle: with "
        "which the interval excludes 0 in 80% of experiments, were the difference as measured (none: not on these "
        "tasks, whatever the seeds); hours: of both arms, without the start, on whatever machines they ran"
    )
    return Table(title=title, columns=SETTLING_COLUMNS, rows=tuple(line for line in lines if line), note=note)


def compared_arms(arms: Sequence[ArmOutcome], design: Design) -> list[tuple[ArmOutcome, ArmOutcome]]:
    """The pairs of the design whose arms both ran."""
    known = {found.arm.name: found for found in arms}
    return [(known[first], known[second]) for first, second in design.compared() if {first, second} <= set(known)]


def _settling_line(found: ArmOutcome, over: ArmOutcome, at: Sequence[int]) -> tuple[str, ...] | None:
    """None if fewer than two seeds or tasks can be compared."""
    pairs = common_seeds(found, over)
    read = at or common_points(pairs)[-1:]
    if len(pairs) < FEWEST or not set(read) <= set(common_points(pairs)):
        return None
    tasks = _common_tasks(pairs, read)
    if len(tasks) < FEWEST:
        return None
    differences, noise = _differences_of(pairs, read, tasks)
    spread, seeds, games = difference_spread(differences, noise), len(pairs), len(tasks)
    estimate = float(differences.mean())
    interval = paired_interval(estimate, spread.variance(seeds=seeds, games=games), seeds=seeds)
    settled = seeds_to_settle(estimate, spread, games=games)
    hours = sum(one.hours + other.hours for one, other in pairs) / seeds
    return (
        found.arm.title,
        over.arm.title,
        str(seeds),
        " ".join(map(str, read)),
        f"{100 * estimate:+.1f} [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]",
        " ".join(f"{100 * value:+.1f}" for value in differences.mean(axis=1)),
        "yes" if interval.low > 0 or interval.high < 0 else "no",
        number(100 * sqrt(spread.of_one_seed(games=games)), 2),
        number(100 * sqrt(spread.evaluation / games), 2),
        seeds_text(settled),
        seeds_text(seeds_to_settle(estimate, spread, games=games, times=MORE)),
        number(hours, 2) if hours else ABSENT,
        number(hours * settled, 1) if hours and settled else ABSENT,
    )


def seeds_text(seeds: int | None) -> str:
    return "none" if seeds is None else str(seeds)


Pairs = Sequence[tuple[RunOutcome, RunOutcome]]


def common_seeds(found: ArmOutcome, over: ArmOutcome) -> list[tuple[RunOutcome, RunOutcome]]:
    """The runs of both arms with equal seeds, in the order of the seeds."""
    others = {run.seed: run for run in over.runs}
    return [(run, others[run.seed]) for run in sorted(found.runs, key=lambda run: run.seed) if run.seed in others]


def common_points(pairs: Pairs) -> list[int]:
    """The iterations after the start at which all of these runs were evaluated."""
    points = [set(run.evaluations) for pair in pairs for run in pair]
    return sorted(set.intersection(*points) - {0}) if points else []


def _common_tasks(pairs: Pairs, read: Sequence[int]) -> list[str]:
    tasks = [set(run.evaluations[point]) for pair in pairs for run in pair for point in read]
    return sorted(set.intersection(*tasks)) if tasks else []


def _differences_of(pairs: Pairs, read: Sequence[int], tasks: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Arrays (seeds, tasks): differences of success rates, averaged over the iterations `read`, and the variance of
    each due to its episodes.
    """

    def of_run(run: RunOutcome) -> tuple[np.ndarray, np.ndarray]:
        wins = [[run.evaluations[point][task] for point in read] for task in tasks]
        rates = [np.mean([np.mean(won) for won in row]) for row in wins]
        return np.array(rates), np.array([sum(map(rate_noise, row)) / len(read) ** 2 for row in wins])

    both = [(of_run(one), of_run(other)) for one, other in pairs]
    return np.array([a[0] - b[0] for a, b in both]), np.array([a[1] + b[1] for a, b in both])
