"""Which tasks the critic asks to change, and in which direction.

    accuracy > alpha_high: harder      accuracy < alpha_low: easier      in between: the task is left alone

Both bounds are strict, as in Algorithm 2 of the RLAnything paper: of five or ten rollouts, a share of exactly 0.2 or
0.8 lies in the band.

The most extreme come first (distance from the middle of the band), ties in an order drawn by seed. A slot
changes only while it has no pending candidate, does not rest after a verdict, and its task is less than
`max_depth` edits deep. With `ask_after` above 1, so many measurements in a row have to lie on the same side of the
band, because one of few rollouts is often mistaken. A task that will give way to its root (`rla.adaptation.standings`)
is not made harder.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from rla.config.sections import AdaptationConfig
from rla.store.records import Direction, Status, Task, content_id


class Choice(NamedTuple):
    """A task to change, the direction, and the accuracy that says so."""

    task: Task
    direction: Direction
    accuracy: float


def wanted_direction(accuracy: float, *, alpha_low: float, alpha_high: float) -> Direction | None:
    """The direction that brings `accuracy` back into [alpha_low, alpha_high]; None if it lies inside."""
    if accuracy > alpha_high:
        return Direction.HARDER
    return Direction.EASIER if accuracy < alpha_low else None


def choose(
    pool: Sequence[Task],
    accuracies: Mapping[str, float],
    *,
    config: AdaptationConfig,
    resting: Collection[str] = (),
    pending: Collection[str] = (),
    leading: Collection[str] = (),
    streaks: Mapping[str, int] | None = None,
    limit: int | None = None,
    seed: int,
) -> list[Choice]:
    """At most `config.max_tasks` choices, less the slots in `pending`, which still await their verdict.

    `accuracies`: task_id -> accuracy in [0, 1] of the tasks that were played. `resting`, `pending`, `leading`: slots.
    `streaks`: slot -> measurements in a row on the side of the last one; 1 where it is not known. `limit`: how many can
    be played, where that may be fewer.
    """
    choices = []
    for task in pool:
        accuracy = accuracies.get(task.task_id)
        if accuracy is None or task.status != Status.ACTIVE or task.depth >= config.max_depth:
            continue
        if task.slot in resting or task.slot in pending:
            continue
        if (streaks or {}).get(task.slot, 1) < config.ask_after:
            continue
        direction = wanted_direction(accuracy, alpha_low=config.alpha_low, alpha_high=config.alpha_high)
        if direction is Direction.HARDER and task.slot in leading:
            continue
        if direction is not None:
            choices.append(Choice(task, direction, accuracy))
    middle = (config.alpha_low + config.alpha_high) / 2
    choices.sort(key=lambda c: (-abs(c.accuracy - middle), content_id(str(seed), c.task.task_id)))
    most = config.max_tasks if limit is None else min(config.max_tasks, limit)
    return choices[: max(0, most - len(pending))]
