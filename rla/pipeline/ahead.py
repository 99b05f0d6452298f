"""How far the planned loop of a run is, and how long the rest of it will take.

`iterations.yaml` says what the loop consists of; the digests in the run folder say what of it is done; the times of
calls that are done say how long the rest takes. Without the time of every stage that is still to come there is no
estimate: before the first iteration is done nobody knows.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config.load import read_yaml
from rla.errors import UserError
from rla.pipeline.finished import policy_evaluated, unmade_reason
from rla.pipeline.plan import evaluations_of
from rla.pipeline.timings import TimedCall, seconds_between, timed_calls

ROOT, STAGE = "DVC_ROOT", "DVC_STAGE"  # DVC sets both for the commands of its stages
BRIEF = "RLA_BRIEF"  # set by `rla run` unless it is to be verbose: a stage says one line
PLAN = "iterations.yaml"
RECENT = 3  # calls of a stage of which the mean is taken: later iterations may take longer than the first
MADE_BY = {
    "rollout": "trajectories",
    "score-steps": "scores",
    "validate-tasks": "verdicts",
    "compute-rewards": "rm_rewards",
    "train-policy": "policy",
    "train-rm": "rm",
    "adapt-env": "candidates",
}
FIRST_NEEDS = ("train-policy", "adapt-env")  # without what these make nothing of the next iteration can be done


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLoop:
    """The loop that DVC is turning: its iterations are 1 to `last`."""

    run: Path
    last: int
    evaluations: tuple[int, ...]


def planned_loop(run: Path) -> PlannedLoop | None:
    """The loop that this stage call is a part of; None where DVC has not called it, or the plan is of another run."""
    if not (os.environ.get(ROOT) and os.environ.get(STAGE)):
        return None
    root = Path(os.environ[ROOT])
    try:
        planned: Any = read_yaml(root / PLAN, remedy="")
    except UserError:
        return None
    if not isinstance(planned, dict) or type(planned.get("last")) is not int:
        return None
    if (root / str(planned.get("run"))).resolve() != run.resolve():
        return None
    return PlannedLoop(run=run, last=planned["last"], evaluations=tuple(evaluations_of(planned)))


def calls_ahead(loop: PlannedLoop, iteration: int) -> Counter[str]:
    """Stage -> how often it is still called, seen from a call of `iteration`: DVC may have begun with it before the one
    before it was done.
    """
    ahead: Counter[str] = Counter()
    for number in range(max(iteration - 1, 1), loop.last + 1):
        left = [stage for stage, name in MADE_BY.items() if unmade_reason(loop.run, name, number)]
        ahead.update(left)
        if any(stage in left for stage in FIRST_NEEDS):
            ahead.update({stage: loop.last - number for stage in MADE_BY})
            break
    ahead["evaluate"] = sum(not policy_evaluated(loop.run, number) for number in loop.evaluations)
    return +ahead


def seconds_ahead(ahead: Counter[str], calls: Sequence[TimedCall]) -> float | None:
    """None where a stage that is still to come was never timed while it made something."""
    total = seconds_between(list(calls)) * ahead.total()
    for stage, count in ahead.items():
        recent = [call.seconds for call in calls if call.stage == stage and call.made][-RECENT:]
        if not recent:
            return None
        total += count * sum(recent) / len(recent)
    return total


def loop_text(loop: PlannedLoop, stage: str, iteration: int) -> str:
    """`iteration 7 of 12, 2 min left`; of a stage outside of iterations only the second part; empty without either."""
    ahead = calls_ahead(loop, iteration)
    left = seconds_ahead(ahead, timed_calls(loop.run)) if ahead else None
    parts = [f"iteration {iteration} of {loop.last}"] if stage in MADE_BY else []
    return ", ".join([*parts, *([f"{rough_duration(left)} left"] if left is not None else [])])


def rough_duration(seconds: float) -> str:
    """`under a minute`, `7 min`, `3.5 h`: no finer than an estimate can be."""
    if seconds < 50:
        return "under a minute"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{round(seconds / 1800) / 2:g} h"
