"""Whether a changed task enters the pool, by the accuracy of the current policy on it.

    harder:  alpha_low < acc(q') < acc(q)
    easier:  acc(q) < acc(q') < alpha_high   and acc(q') > 0

All bounds are strict. acc(q) was measured when the change was asked for, acc(q') on the next iteration's
rollouts. Source: RLAnything, acceptance of adapted tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from rla.errors import UserError
from rla.records import Direction, Task


class Verdict(NamedTuple):
    """Accepted or not, and why in one sentence."""

    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskVerdict:
    """One row of a `verdicts` shard."""

    task_id: str
    parent_id: str
    slot: str
    iteration: int
    direction: str
    parent_accuracy: float
    accuracy: float
    rollouts: int
    accepted: bool
    reason: str

    def row(self) -> dict[str, Any]:
        return asdict(self)


def verdict(
    direction: Direction, parent_accuracy: float, accuracy: float, *, alpha_low: float, alpha_high: float
) -> Verdict:
    """The rule above; the reason names the bound that failed, or the comparison that held."""
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
    measured: Mapping[str, tuple[float, int]],
    parent_accuracies: Mapping[str, float],
    *,
    iteration: int,
    alpha_low: float,
    alpha_high: float,
) -> list[TaskVerdict]:
    """A verdict for every pending task, in their order.

    `measured`: task_id -> (accuracy, rollouts). A task without rollouts is rejected with accuracy 0.
    `parent_accuracies`: task_id of the pending task -> accuracy of its parent when the change was asked for.
    Raises `UserError` on a pending task without parent, direction or parent's accuracy.
    """
    verdicts = []
    for task in pending:
        parent_id, direction, parent_accuracy = _origin(task, parent_accuracies)
        accuracy, rollouts = measured.get(task.task_id, (0.0, 0))
        ruled = Verdict(False, "no rollout finished")
        if rollouts:
            ruled = verdict(direction, parent_accuracy, accuracy, alpha_low=alpha_low, alpha_high=alpha_high)
        verdicts.append(
            TaskVerdict(
                task_id=task.task_id,
                parent_id=parent_id,
                slot=task.slot,
                iteration=iteration,
                direction=direction.value,
                parent_accuracy=parent_accuracy,
                accuracy=accuracy,
                rollouts=rollouts,
                accepted=ruled.accepted,
                reason=ruled.reason,
            )
        )
    return verdicts


def _origin(task: Task, parent_accuracies: Mapping[str, float]) -> tuple[str, Direction, float]:
    accuracy = parent_accuracies.get(task.task_id)
    if task.parent_id is None or task.direction is None or accuracy is None:
        raise UserError(
            f"candidates: pending task {task.task_id} has no parent, no direction or no parent's accuracy; "
            "run `rla adapt-env` again"
        )
    return task.parent_id, Direction(task.direction), accuracy
