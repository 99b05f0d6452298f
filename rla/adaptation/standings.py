"""How every slot of the pool stands after an iteration: who holds it, how it was measured, what was decided and why.

A task *leaves the band for good* when its last `return_after` measurements as an active task all lie outside of it on
the same side (too hard: accuracy < alpha_low; too easy: accuracy > alpha_high) and it is

    too hard    always
    too easy    where all edits made it easier, or at `max_depth`, where it cannot be made harder

A descendant that does gives its slot back to its root, unless a task was accepted for the slot in the same iteration.
What only made the root easier led up to it: once that is mastered the root is next, and no other edits.
An iteration in which it is not played neither counts nor breaks the row; the measurement at which it was accepted does
not count. After a verdict the slot rests for `cooldown` iterations, this one included; after a return, whose root is
first played in the next, for the `cooldown` iterations that follow.

The row of an iteration follows from the row before it and from this iteration's rollouts and verdicts alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from rla.adaptation.accept import UNPLAYED, Measured, TaskVerdict
from rla.adaptation.choose import wanted_direction
from rla.adaptation.playing import Seen
from rla.config.sections import AdaptationConfig
from rla.errors import UserError
from rla.store.records import Direction, Task


class Decision(StrEnum):
    """What an iteration did with a slot."""

    KEPT = "kept"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One row of a `standings` shard.

    `held_id` held the slot when the iteration began, and `accuracy` over `rollouts` episodes is its; `task_id` holds it
    now, since iteration `since`, at `depth` edits from the root. `outside`: the direction that would lead it back into
    the band, after `streak` measurements in a row. `rests_until`: the last iteration in which it is left alone.
    `eased`: every edit between its root and it made it easier. `accepted`, `returned`: how often that has happened in
    this slot. `seen`, `seen_accuracy`: the last iteration in which the task that holds it now was played, and its
    accuracy there; nothing before that. `tried`: the tasks that were played and judged for it, in that order; none of
    them is proposed again.
    """

    slot: str
    iteration: int
    held_id: str
    accuracy: float | None
    rollouts: int
    decision: str
    reason: str
    task_id: str
    depth: int
    since: int
    outside: str | None
    streak: int
    rests_until: int
    eased: bool
    accepted: int
    returned: int
    tried: tuple[str, ...]
    seen: int | None = None
    seen_accuracy: float | None = None

    def row(self) -> dict[str, Any]:
        return asdict(self)


def next_standings(
    pool: Sequence[Task],
    verdicts: Iterable[TaskVerdict],
    measured: Mapping[str, Measured],
    earlier: Iterable[Standing],
    *,
    iteration: int,
    config: AdaptationConfig,
) -> list[Standing]:
    """The standing of every slot of `pool`, in its order.

    `pool`: as it was played. `measured`: task_id -> (accuracy, rollouts). `earlier`: the standings after the iteration
    before, empty at the first. Raises `UserError` where they are of another pool.
    """
    before = {standing.slot: standing for standing in earlier}
    decided = {verdict.slot: verdict for verdict in sorted(verdicts, key=lambda verdict: verdict.accepted)}
    standings = []
    for task in pool:
        last = before.get(task.slot, _first(task))
        if last.task_id != task.task_id or (before and task.slot not in before):
            raise UserError(
                f"standings: slot {task.slot} is held by another task than in the pool; give the standings and the "
                "pool of one iteration"
            )
        played = _measure(last, task, measured.get(task.task_id, UNPLAYED), iteration=iteration, config=config)
        standings.append(_decide(played, decided.get(task.slot), config=config))
    return standings


def resting_slots(standings: Iterable[Standing], *, iteration: int) -> set[str]:
    """The slots that `adapt-env` leaves alone in `iteration`."""
    return {standing.slot for standing in standings if standing.rests_until >= iteration}


def leading_slots(standings: Iterable[Standing], *, config: AdaptationConfig) -> set[str]:
    """The slots whose task gives way to its root once it is mastered, and so is not made harder."""
    return {standing.slot for standing in standings if standing.eased and config.return_after}


def measured_streaks(standings: Iterable[Standing]) -> dict[str, int]:
    """Slot -> how many measurements in a row lie on the side of the last one, that of its acceptance included."""
    return {standing.slot: max(standing.streak, 1) for standing in standings}


def last_measurements(standings: Iterable[Standing]) -> dict[str, Seen]:
    """Slot -> the last measurement of the task that holds it, where there is one."""
    return {
        standing.slot: Seen(standing.seen, standing.seen_accuracy)
        for standing in standings
        if standing.seen is not None and standing.seen_accuracy is not None
    }


def returned_slots(standings: Iterable[Standing]) -> set[str]:
    """The slots that went back to their root in the iteration of `standings`."""
    return {standing.slot for standing in standings if standing.decision == Decision.RETURNED}


def _first(task: Task) -> Standing:
    """A slot that nothing has happened to."""
    return Standing(
        slot=task.slot,
        iteration=0,
        held_id=task.task_id,
        accuracy=None,
        rollouts=0,
        decision=Decision.KEPT.value,
        reason="",
        task_id=task.task_id,
        depth=task.depth,
        since=task.created,
        outside=None,
        streak=0,
        rests_until=0,
        eased=False,
        accepted=0,
        returned=0,
        tried=(),
    )


def _measure(last: Standing, task: Task, result: Measured, *, iteration: int, config: AdaptationConfig) -> Standing:
    """`last` with this iteration's measurement of the task that holds the slot; nothing decided."""
    accuracy, rollouts = result
    fresh = replace(last, iteration=iteration, held_id=task.task_id, decision=Decision.KEPT.value, reason="")
    if not rollouts:
        return replace(fresh, accuracy=None, rollouts=0)
    side = wanted_direction(accuracy, alpha_low=config.alpha_low, alpha_high=config.alpha_high)
    streak = 0 if side is None else last.streak + 1 if side == last.outside else 1
    return replace(
        fresh,
        accuracy=accuracy,
        rollouts=rollouts,
        outside=side.value if side else None,
        streak=streak,
        seen=iteration,
        seen_accuracy=accuracy,
    )


def _decide(played: Standing, verdict: TaskVerdict | None, *, config: AdaptationConfig) -> Standing:
    """`played` after its verdict, if there is one, or after its return to the root."""
    if verdict is not None and verdict.rollouts:
        played = replace(played, tried=(*played.tried, verdict.task_id))
    afresh = replace(played, since=played.iteration, outside=None, streak=0)
    rest = max(played.rests_until, played.iteration + config.cooldown - 1)
    if verdict is not None and verdict.accepted:
        return replace(
            afresh,
            decision=Decision.ACCEPTED.value,
            reason=verdict.reason,
            task_id=verdict.task_id,
            depth=played.depth + 1,
            rests_until=rest,
            eased=verdict.direction == Direction.EASIER and (played.eased or played.depth == 0),
            accepted=played.accepted + 1,
            seen=played.iteration,
            seen_accuracy=verdict.accuracy,
        )
    if why := left_for_good(played, config=config):
        return replace(
            afresh,
            decision=Decision.RETURNED.value,
            reason=why,
            task_id=played.slot,
            depth=0,
            rests_until=max(played.rests_until, played.iteration + config.cooldown),
            eased=False,
            returned=played.returned + 1,
            seen=None,
            seen_accuracy=None,
        )
    if verdict is None:
        return played
    return replace(played, decision=Decision.REJECTED.value, reason=verdict.reason, rests_until=rest)


def left_for_good(played: Standing, *, config: AdaptationConfig) -> str:
    """Why the task that holds the slot gives way to its root; "" where it does not."""
    root = played.depth == 0 or played.task_id == played.slot
    if root or not played.rollouts or not 0 < config.return_after <= played.streak:
        return ""
    measurements = f"in {played.streak} measurements, last accuracy {played.accuracy:.3f}"
    if played.outside == Direction.EASIER:
        return f"too hard {measurements}"
    if played.eased:
        return f"mastered {measurements}"
    return f"too easy at the depth limit {measurements}" if played.depth >= config.max_depth else ""
