"""Held-out success of arms, and each arm's difference from the base, paired by task.

Single runs are compared by `rla.metrics.intervals.difference`, with tasks as clusters. If an arm has several seeds,
`rla_study.metrics.bootstrap` is used, over seeds and tasks. All arms are read at the same iterations, on the tasks that
all have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rla.metrics.intervals import Interval, difference, success_interval
from rla_study.ablation.outcomes import ArmOutcome, RunOutcome
from rla_study.ablation.table import arm_sample, evaluated, shared_tasks
from rla_study.comparing.runs import ComparedArm
from rla_study.metrics import bootstrap


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """An arm's result on one split; `success` and `over` (minus the base) are None if unknown."""

    name: str
    seeds: int
    start: float | None
    success: Interval | None
    over: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitResult:
    """`points`: the iterations that are read. `tasks`: the number of tasks that all arms played there; `played`: how
    many each arm played. `reached`: the base first. `evaluations`: for each arm, the iterations at which all of its
    runs were evaluated.
    """

    split: str
    points: tuple[int, ...]
    tasks: int
    played: tuple[int, ...]
    reached: tuple[Reached, ...]
    evaluations: tuple[tuple[int, ...], ...]


def split_names(arms: Sequence[ComparedArm]) -> list[str]:
    """Every held-out split that a run was evaluated on; the base's main one comes first."""
    runs = [run for arm in arms for run in arm.runs]
    named = [(run.outcome.split, *run.outcome.further) for run in runs]
    return [
        name
        for name in dict.fromkeys(name for names in named for name in names)
        if any(run.evaluations(name) for run in runs)
    ]


def split_result(arms: Sequence[ComparedArm], split: str, at: Sequence[int]) -> SplitResult:
    """`arms`: the base first. `at`: the iterations to read; if empty, `_last_shared` chooses one."""
    outcomes = [arm.outcome(split) for arm in arms]
    points = tuple(sorted(set(at))) or _last_shared(outcomes)
    there = [found for found in outcomes if points and evaluated(found, points)]
    played = [shared_tasks(found, points) for found in there]
    tasks = set.intersection(*played) if played else set()
    base = outcomes[0] if outcomes[0] in there else None
    return SplitResult(
        split=split,
        points=points,
        tasks=len(tasks),
        played=tuple(map(len, played)),
        reached=tuple(reached(found, base, points, tasks if found in there else set()) for found in outcomes),
        evaluations=tuple(tuple(found.shared_points) for found in outcomes),
    )


def _last_shared(outcomes: Sequence[ArmOutcome]) -> tuple[int, ...]:
    """The last iteration after the start at which all arms were evaluated, as a tuple. Arms without a later evaluation
    do not count. It is the start itself if no run was evaluated later, and empty if none was evaluated at all.
    """
    shared = [set(found.shared_points) for found in outcomes]
    if any(point > 0 for found in outcomes for run in found.runs for point in run.evaluations):
        shared = [points - {0} for points in shared]
    ready = [points for points in shared if points]
    return tuple(sorted(set.intersection(*ready))[-1:]) if ready else ()


def reached(found: ArmOutcome, base: ArmOutcome | None, points: Sequence[int], tasks: set[str]) -> Reached:
    start = success = over = None
    if tasks:
        success = _success_of(found, points, tasks)
        start = _start_of(found, tasks)
        over = _over_base(found, base, points, tasks) if base is not None and base is not found else None
    return Reached(name=found.arm.name, seeds=len(found.runs), start=start, success=success, over=over)


def _start_of(found: ArmOutcome, tasks: set[str]) -> float | None:
    """Success before the first iteration."""
    if 0 not in found.shared_points or not (both := tasks & shared_tasks(found, [0])):
        return None
    return float(arm_sample(found, [0], both).mean())


def _success_of(found: ArmOutcome, points: Sequence[int], tasks: set[str]) -> Interval | None:
    if len(found.runs) > 1:
        return bootstrap.seed_mean(arm_sample(found, points, tasks))
    won = _outcomes_at(found.runs[0], points, tasks)
    return success_interval((task, win) for task, wins in won.items() for win in wins)


def _over_base(found: ArmOutcome, base: ArmOutcome, points: Sequence[int], tasks: set[str]) -> Interval | None:
    if len(found.runs) == len(base.runs) == 1:
        return difference(*(_outcomes_at(one.runs[0], points, tasks) for one in (base, found)))
    return bootstrap.seed_difference(*(arm_sample(one, points, tasks) for one in (found, base)))


def _outcomes_at(run: RunOutcome, points: Sequence[int], tasks: set[str]) -> dict[str, list[bool]]:
    """Task -> whether each of its episodes was won, over all `points` together."""
    return {task: [win for point in points for win in run.evaluations[point][task]] for task in sorted(tasks)}
