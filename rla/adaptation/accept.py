"""Whether a changed task enters the pool, by the accuracy of the current policy on it.

    harder:  alpha_low < acc(q') < acc(q)
    easier:  acc(q) < acc(q') < alpha_high   and acc(q') > 0

All bounds are strict. `paper`: acc(q) was measured when the change was asked for, acc(q') on the next iteration's
rollouts. Source: RLAnything, acceptance of adapted tasks.

`interval`: both were measured on this iteration's rollouts, under one policy, so that what the policy has learnt
meanwhile is not taken for a change of difficulty; and besides the rule above Newcombe's interval of acc(q') - acc(q)
must lie on the side that was asked for:

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


class Verdict(NamedTuple):
    """Accepted or not, and why in one sentence."""

    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskVerdict:
    """One row of a `verdicts` shard.

    `parent_accuracy` was measured when the change was asked for, `parent_accuracy_now` and the difference with the same
    policy as `accuracy`; nothing where the parent was not played. Of the expert: success and mean steps on an accepted
    task, its parent and its root (`rla.adaptation.standings`).
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


def certain(ruled: Verdict, direction: Direction, difference: Interval, *, confidence: float) -> Verdict:
    """`ruled`, which accepts, only where `difference` (task minus parent) excludes that nothing changed."""
    held = difference.high < 0 if direction is Direction.HARDER else difference.low > 0
    bounds = f"difference {difference.low:+.3f} to {difference.high:+.3f} at {confidence:g}"
    return Verdict(True, f"{ruled.reason}, {bounds}") if held else Verdict(False, f"not certain: {bounds}")


def judge_pending(
    pending: Sequence[Task],
    measured: Mapping[str, Measured],
    parent_accuracies: Mapping[str, float],
    *,
    iteration: int,
    alpha_low: float,
    alpha_high: float,
    rule: Rule = "paper",
    confidence: float = 0.9,
) -> list[TaskVerdict]:
    """A verdict for every pending task, in their order.

    `measured`: task_id -> (accuracy, rollouts) now; a task without rollouts is rejected, with `interval` also one whose
    parent has none. `parent_accuracies`: task_id of the pending task -> accuracy of its parent when it was asked for.
    Raises `UserError` on a pending task without parent, direction or parent's accuracy.
    """
    verdicts = []
    for task in pending:
        parent_id, direction, asked = _origin(task, parent_accuracies)
        own, parents = measured.get(task.task_id, UNPLAYED), measured.get(parent_id, UNPLAYED)
        difference = newcombe(_wins(*parents), _wins(*own), confidence=confidence)
        against = parents if rule == "interval" else (asked, own[1])
        ruled = _ruled(direction, against, own, alpha_low=alpha_low, alpha_high=alpha_high)
        if ruled.accepted and rule == "interval" and difference is not None:
            ruled = certain(ruled, direction, difference, confidence=confidence)
        verdicts.append(
            TaskVerdict(
                task_id=task.task_id,
                parent_id=parent_id,
                slot=task.slot,
                iteration=iteration,
                direction=direction.value,
                parent_accuracy=asked,
                accuracy=own[0],
                rollouts=own[1],
                **ruled._asdict(),
                **_compared(rule, parents, difference, confidence),
            )
        )
    return verdicts


def _compared(rule: Rule, parents: Measured, difference: Interval | None, confidence: float) -> dict[str, Any]:
    """The rule, and the parent under the policy that played the task; nothing of it where it was not played."""
    if difference is None:
        return {"rule": rule, "parent_accuracy_now": parents[0] if parents[1] else None, "parent_rollouts": parents[1]}
    return {
        "rule": rule,
        "parent_accuracy_now": parents[0],
        "parent_rollouts": parents[1],
        "confidence": confidence,
        "difference_low": difference.low,
        "difference_high": difference.high,
    }


def _ruled(direction: Direction, against: Measured, own: Measured, *, alpha_low: float, alpha_high: float) -> Verdict:
    """The paper's rule where there is something to compare."""
    if not own[1]:
        return Verdict(False, "no rollout finished")
    if not against[1]:
        return Verdict(False, "no rollout of the parent finished")
    return verdict(direction, against[0], own[0], alpha_low=alpha_low, alpha_high=alpha_high)


def _wins(accuracy: float, rollouts: int) -> tuple[int, int]:
    return round(accuracy * rollouts), rollouts


def _origin(task: Task, parent_accuracies: Mapping[str, float]) -> tuple[str, Direction, float]:
    accuracy = parent_accuracies.get(task.task_id)
    if task.parent_id is None or task.direction is None or accuracy is None:
        raise UserError(
            f"candidates: pending task {task.task_id} has no parent, no direction or no parent's accuracy; "
            "run `rla adapt-env` again"
        )
    return task.parent_id, Direction(task.direction), accuracy
