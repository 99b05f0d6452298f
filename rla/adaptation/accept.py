"""Whether a changed task enters the pool, by the accuracy of the current policy on it.

    harder:  alpha_low < acc(q') < acc(q)
    easier:  acc(q) < acc(q') < alpha_high   and acc(q') > 0

All bounds are strict. `paper`: acc(q) was measured when the change was asked for, acc(q') on the next iteration's
rollouts. Source: RLAnything, acceptance of adapted tasks.

`interval`: both are measured on this iteration's rollouts, under one policy, so that learning is not mistaken for a
change of difficulty. In addition, Newcombe's interval of acc(q') - acc(q) must lie on the side that was asked for:

    harder:  high < 0            easier:  low > 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from rla.errors import UserError
from rla.metrics.intervals import Interval, newcombe
from rla.store.records import Direction, Task

Rule = Literal["paper", "interval"]
Measured = tuple[float, int]  # accuracy, and of how many finished rollouts
UNPLAYED: Measured = (0.0, 0)
CONFIDENCE = 0.9  # of the two-sided interval that must exclude "no difference"


class Verdict(NamedTuple):
    """Accepted or not, and why in one sentence."""

    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskVerdict:
    """One row of a `verdicts` shard.

    `parent_accuracy` was measured when the change was asked for; `parent_accuracy_now` and the difference, under the
    same policy as `accuracy`, are null if the parent was not played. The expert's success and mean steps are those on
    an accepted task, its parent and its root (`rla.adaptation.standings`).
    """

    task_id: str
    parent_id: str
    slot: str
    iteration: int
    direction: str
    rule: str
    parent_accuracy: float
    parent_accuracy_now: float | None = None
    parent_rollouts: int = 0
    accuracy: float
    rollouts: int
    confidence: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    accepted: bool
    reason: str
    expert_success: float | None = None
    expert_steps: float | None = None
    parent_expert_success: float | None = None
    parent_expert_steps: float | None = None
    root_expert_success: float | None = None
    root_expert_steps: float | None = None

    def row(self) -> dict[str, Any]:
        return asdict(self)


def wanted_direction(accuracy: float, *, alpha_low: float, alpha_high: float) -> Direction | None:
    """The direction that brings `accuracy` back into [alpha_low, alpha_high]; None if it lies inside."""
    if accuracy > alpha_high:
        return Direction.HARDER
    return Direction.EASIER if accuracy < alpha_low else None


def verdict(
    direction: Direction, parent_accuracy: float, accuracy: float, *, alpha_low: float, alpha_high: float
) -> Verdict:
    """The paper's rule; the reason names the bound that failed, or the comparison that held."""
    if direction is Direction.HARDER:
        if accuracy <= alpha_low:
            return Verdict(False, f"too hard: accuracy {accuracy:.3f} is not above {alpha_low:.3f}")
        if accuracy >= parent_accuracy:
            return Verdict(False, f"not harder: accuracy {accuracy:.3f} is not below {parent_accuracy:.3f}")
        return Verdict(True, f"harder: accuracy {accuracy:.3f} against {parent_accuracy:.3f}")
    if accuracy <= 0.0:
        return Verdict(False, "never won")
    if accuracy <= parent_accuracy:
        return Verdict(False, f"not easier: accuracy {accuracy:.3f} is not above {parent_accuracy:.3f}")
    if accuracy >= alpha_high:
        return Verdict(False, f"too easy: accuracy {accuracy:.3f} is not below {alpha_high:.3f}")
    return Verdict(True, f"easier: accuracy {accuracy:.3f} against {parent_accuracy:.3f}")


def judge_pending(
    pending: Sequence[Task],
    measured: Mapping[str, Measured],
    parent_accuracies: Mapping[str, float],
    *,
    iteration: int,
    alpha_low: float,
    alpha_high: float,
    rule: Rule = "paper",
) -> list[TaskVerdict]:
    """A verdict for every pending task, in their order.

    `measured`: task_id -> (accuracy, rollouts) now; a task without rollouts is rejected, with `interval` also one whose
    parent has none. `parent_accuracies`: task_id of the pending task -> accuracy of its parent when the change was
    asked for. Raises `UserError` for a pending task without a parent, a direction or its parent's accuracy.
    """
    verdicts = []
    for task in pending:
        asked = parent_accuracies.get(task.task_id)
        if task.parent_id is None or task.direction is None or asked is None:
            raise UserError(
                f"candidates: pending task {task.task_id} has no parent, no direction or no parent's accuracy; "
                "run `rla adapt-env` again"
            )
        direction = Direction(task.direction)
        accuracy, rollouts = measured.get(task.task_id, UNPLAYED)
        now, parent_rollouts = measured.get(task.parent_id, UNPLAYED)
        wins = (round(now * parent_rollouts), parent_rollouts), (round(accuracy * rollouts), rollouts)
        difference = newcombe(*wins, confidence=CONFIDENCE)
        if not rollouts:
            ruled = Verdict(False, "no rollout finished")
        elif rule == "interval" and not parent_rollouts:
            ruled = Verdict(False, "no rollout of the parent finished")
        else:
            against = now if rule == "interval" else asked
            ruled = verdict(direction, against, accuracy, alpha_low=alpha_low, alpha_high=alpha_high)
        if ruled.accepted and rule == "interval" and difference is not None:
            ruled = certain(ruled, direction, difference)
        verdicts.append(
            TaskVerdict(
                task_id=task.task_id,
                parent_id=task.parent_id,
                slot=task.slot,
                iteration=iteration,
                direction=direction.value,
                rule=rule,
                parent_accuracy=asked,
                parent_accuracy_now=now if parent_rollouts else None,
                parent_rollouts=parent_rollouts,
                accuracy=accuracy,
                rollouts=rollouts,
                confidence=None if difference is None else CONFIDENCE,
                difference_low=None if difference is None else difference.low,
                difference_high=None if difference is None else difference.high,
                accepted=ruled.accepted,
                reason=ruled.reason,
            )
        )
    return verdicts


def certain(ruled: Verdict, direction: Direction, difference: Interval) -> Verdict:
    """`ruled`, which accepts, unless `difference` (task minus parent) leaves open that nothing changed."""
    held = difference.high < 0 if direction is Direction.HARDER else difference.low > 0
    bounds = f"difference {difference.low:+.3f} to {difference.high:+.3f} at {CONFIDENCE:g}"
    return Verdict(True, f"{ruled.reason}, {bounds}") if held else Verdict(False, f"not certain: {bounds}")
