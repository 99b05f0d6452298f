"""The fate of changed tasks: a verdict on each pending task, the state of every slot, and the next pool.

A pending task enters the pool by the accuracy of the current policy on it:

    harder:  alpha_low < acc(q') < acc(q)
    easier:  acc(q) < acc(q') < alpha_high   and acc(q') > 0

All bounds are strict. `paper`: acc(q) was measured when the change was asked for, acc(q') on the next iteration's
rollouts. Source: RLAnything, acceptance of adapted tasks.

`interval`: both are measured on this iteration's rollouts, under one policy, so that learning is not mistaken for a
change of difficulty. In addition, Newcombe's interval of acc(q') - acc(q) must lie below 0 (harder) or above 0
(easier).

A slot returns to its root if the last `return_after` measurements of its task as an active task all lie outside the
band on the same side (too hard: accuracy < alpha_low; too easy: accuracy > alpha_high) and the task is

    too hard    always
    too easy    if every edit made it easier, or at `max_depth`, where it cannot be made harder

An accepted task takes precedence over the return. Edits that only made the root easier led up to it: once such a task
is mastered, the root is next, and the task is not edited further. An iteration without episodes of the task neither
counts nor interrupts the row of measurements, and the measurement at which the task was accepted does not count either.
After a verdict the slot rests for `cooldown` iterations, including this one; after a return for the `cooldown`
iterations that follow, because the root is first played in the next one.

The row of a slot follows from its row of the iteration before and from this iteration's rollouts and verdicts alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from rla.adaptation.drafting import edit_tally
from rla.config import Config
from rla.config.sections import AdaptationConfig
from rla.envs.protocols import HasExpert
from rla.errors import UserError
from rla.metrics.intervals import newcombe
from rla.seeds import derive
from rla.store.reading import read_rows
from rla.store.records import Direction, Status, StopReason, Task

Rule = Literal["paper", "interval"]
Measured = tuple[float, int]  # accuracy, and the number of finished rollouts
_UNPLAYED: Measured = (0.0, 0)
CONFIDENCE = 0.9  # of the two-sided interval that must exclude "no difference"
_EXPERT_EPISODES = 8  # of an accepted task, its parent and its root


class Verdict(NamedTuple):
    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskVerdict:
    """One row of a `verdicts` shard.

    `parent_accuracy` was measured when the change was asked for. `parent_accuracy_now` and the difference are measured
    under the same policy as `accuracy`; they are null if the parent was not played. The expert's success and mean steps
    are those on an accepted task, its parent and its root.
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


def measured_accuracies(rows: Iterable[Mapping[str, Any]]) -> dict[str, Measured]:
    """task id -> (share of won episodes, episodes), without episodes that ended because their environment failed."""
    outcomes: dict[str, list[int]] = {}
    for row in rows:
        if row["stop_reason"] != StopReason.ENV_ERROR:
            outcomes.setdefault(row["task_id"], []).append(row["outcome"])
    return {task: (sum(o == 1 for o in values) / len(values), len(values)) for task, values in outcomes.items()}


def wanted_direction(accuracy: float, config: AdaptationConfig) -> Direction | None:
    """The direction that brings `accuracy` back into [alpha_low, alpha_high]; None if it lies inside."""
    if accuracy > config.alpha_high:
        return Direction.HARDER
    return Direction.EASIER if accuracy < config.alpha_low else None


def verdict(direction: Direction, parent_accuracy: float, accuracy: float, config: AdaptationConfig) -> Verdict:
    """The paper's rule; the reason names the bound that failed, or the comparison that held."""
    if direction is Direction.HARDER:
        if accuracy <= config.alpha_low:
            return Verdict(False, f"too hard: accuracy {accuracy:.3f} is not above {config.alpha_low:.3f}")
        if accuracy >= parent_accuracy:
            return Verdict(False, f"not harder: accuracy {accuracy:.3f} is not below {parent_accuracy:.3f}")
        return Verdict(True, f"harder: accuracy {accuracy:.3f} against {parent_accuracy:.3f}")
    if accuracy <= 0.0:
        return Verdict(False, "never won")
    if accuracy <= parent_accuracy:
        return Verdict(False, f"not easier: accuracy {accuracy:.3f} is not above {parent_accuracy:.3f}")
    if accuracy >= config.alpha_high:
        return Verdict(False, f"too easy: accuracy {accuracy:.3f} is not below {config.alpha_high:.3f}")
    return Verdict(True, f"easier: accuracy {accuracy:.3f} against {parent_accuracy:.3f}")


def judge_pending(
    pending: Sequence[Task],
    measured: Mapping[str, Measured],
    parent_accuracies: Mapping[str, float],
    *,
    iteration: int,
    config: AdaptationConfig,
) -> list[TaskVerdict]:
    """A verdict for every pending task, in their order.

    `measured`: task_id -> (accuracy, rollouts) now; a task without rollouts is rejected, with `interval` also one whose
    parent has none. `parent_accuracies`: task_id of the pending task -> accuracy of its parent when the change was
    asked for. Raises UserError for a pending task without a parent, a direction or its parent's accuracy.
    """
    verdicts, rule = [], config.acceptance
    for task in pending:
        asked = parent_accuracies.get(task.task_id)
        if task.parent_id is None or task.direction is None or asked is None:
            raise UserError(
                f"candidates: pending task {task.task_id} has no parent, no direction or no parent's accuracy; "
                "run `rla adapt-env` again"
            )
        direction = Direction(task.direction)
        accuracy, rollouts = measured.get(task.task_id, _UNPLAYED)
        now, parent_rollouts = measured.get(task.parent_id, _UNPLAYED)
        wins = (round(now * parent_rollouts), parent_rollouts), (round(accuracy * rollouts), rollouts)
        difference = newcombe(*wins, confidence=CONFIDENCE)  # task minus parent
        if not rollouts:
            ruled = Verdict(False, "no rollout finished")
        elif rule == "interval" and not parent_rollouts:
            ruled = Verdict(False, "no rollout of the parent finished")
        else:
            against = now if rule == "interval" else asked
            ruled = verdict(direction, against, accuracy, config)
        if ruled.accepted and rule == "interval" and difference is not None:
            certain = difference.high < 0 if direction is Direction.HARDER else difference.low > 0
            bounds = f"difference {difference.low:+.3f} to {difference.high:+.3f} at {CONFIDENCE:g}"
            ruled = Verdict(certain, f"{ruled.reason}, {bounds}" if certain else f"not certain: {bounds}")
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


def with_expert(
    verdicts: Iterable[TaskVerdict], tasks: Mapping[str, Task], player: HasExpert, config: Config
) -> list[TaskVerdict]:
    """`verdicts`, the accepted ones with figures from eight episodes of the expert on each.

    The expert sees observations only and does not learn, so its success changes with the tasks alone, while the success
    of the policy also changes with training. Seeds depend on run, task and episode, not on the iteration: a task that
    is played again gives the same figures. `tasks`: task_id -> task, with parents and roots.
    """

    @cache
    def figures(task_id: str) -> dict[str, float]:
        """Share of won episodes, and mean number of commands over all of them."""
        seeds = [derive(config.seed, "expert", task_id, number) for number in range(_EXPERT_EPISODES)]
        played = [player.play_expert(tasks[task_id], config, seed=seed) for seed in seeds]
        return {"success": fmean(one.won for one in played), "steps": fmean(len(one.actions) for one in played)}

    def measured(one: TaskVerdict) -> dict[str, Any]:
        played = {"": one.task_id, "parent_": one.parent_id, "root_": one.slot}
        return {f"{of}expert_{name}": value for of, task in played.items() for name, value in figures(task).items()}

    return [replace(one, **measured(one)) if one.accepted else one for one in verdicts]


class Decision(StrEnum):
    KEPT = "kept"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One row of a `standings` shard.

    `held_id` was in the slot when the iteration began, with `accuracy` over `rollouts` episodes; `task_id` is its task
    now, since iteration `since`, at `depth` edits from the root. `outside`: the direction that would lead back into the
    band, after `streak` measurements in a row. `rests_until`: the last iteration in which the slot is left alone.
    `eased`: every edit since the root made the task easier. `accepted`, `returned`: counts over the run. `tried`: the
    tasks that were played and judged for the slot, in order; none of them is proposed again.
    """

    slot: str
    iteration: int = 0
    held_id: str
    accuracy: float | None = None
    rollouts: int = 0
    decision: str = Decision.KEPT.value
    reason: str = ""
    task_id: str
    depth: int
    since: int
    outside: str | None = None
    streak: int = 0
    rests_until: int = 0
    eased: bool = False
    accepted: int = 0
    returned: int = 0
    tried: tuple[str, ...] = ()


def read_standings(folder: Path) -> list[Standing]:
    return [Standing(**{**row, "tried": tuple(row["tried"])}) for row in read_rows(folder, "standings")]


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
    before, empty in the first one. Raises UserError if they belong to another pool.
    """
    before = {standing.slot: standing for standing in earlier}
    decided = {verdict.slot: verdict for verdict in sorted(verdicts, key=lambda verdict: verdict.accepted)}
    standings = []
    for task in pool:
        last = before.get(task.slot) or Standing(
            slot=task.slot, held_id=task.task_id, task_id=task.task_id, depth=task.depth, since=task.created
        )
        if last.task_id != task.task_id or (before and task.slot not in before):
            raise UserError(
                f"standings: slot {task.slot} is held by another task than in the pool; give the standings and the "
                "pool of one iteration"
            )
        played = _measure(last, measured.get(task.task_id, _UNPLAYED), iteration=iteration, config=config)
        standings.append(_decide(played, decided.get(task.slot), config=config))
    return standings


def _measure(last: Standing, result: Measured, *, iteration: int, config: AdaptationConfig) -> Standing:
    """`last` with this iteration's measurement of the slot's task, before any decision."""
    accuracy, rollouts = result
    fresh = replace(last, iteration=iteration, held_id=last.task_id, decision=Decision.KEPT.value, reason="")
    if not rollouts:
        return replace(fresh, accuracy=None, rollouts=0)
    side = wanted_direction(accuracy, config)
    streak = 0 if side is None else last.streak + 1 if side == last.outside else 1
    return replace(fresh, accuracy=accuracy, rollouts=rollouts, outside=side.value if side else None, streak=streak)


def _decide(played: Standing, verdict: TaskVerdict | None, *, config: AdaptationConfig) -> Standing:
    """`played` after its verdict or its return to the root, if either applies."""
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
        )
    if why := _reason_to_return(played, config=config):
        return replace(
            afresh,
            decision=Decision.RETURNED.value,
            reason=why,
            task_id=played.slot,
            depth=0,
            rests_until=max(played.rests_until, played.iteration + config.cooldown),
            eased=False,
            returned=played.returned + 1,
        )
    if verdict is None:
        return played
    return replace(played, decision=Decision.REJECTED.value, reason=verdict.reason, rests_until=rest)


def _reason_to_return(played: Standing, *, config: AdaptationConfig) -> str:
    """Why the slot returns to its root; empty if its task stays."""
    root = played.depth == 0 or played.task_id == played.slot
    if root or not played.rollouts or not 0 < config.return_after <= played.streak:
        return ""
    measurements = f"in {played.streak} measurements, last accuracy {played.accuracy:.3f}"
    if played.outside == Direction.EASIER:
        return f"too hard {measurements}"
    if played.eased:
        return f"mastered {measurements}"
    return f"too easy at the depth limit {measurements}" if played.depth >= config.max_depth else ""


def next_pool(
    pool: Sequence[Task],
    pending: Sequence[Task],
    verdicts: Iterable[TaskVerdict],
    roots: Mapping[str, Task] = MappingProxyType({}),
) -> list[Task]:
    """`pool` with every accepted task of `pending` in its parent's slot: the same slots in the same order, all active.

    `roots`: slot -> the root that returns to it; an accepted task takes precedence. A pending task without a verdict
    counts as rejected. Raises UserError if a parent is not in its slot, or a root belongs to another slot.
    """
    parents = {task.slot: task for task in pool}
    accepted = {verdict.task_id for verdict in verdicts if verdict.accepted}
    children: dict[str, Task] = {}
    for task in pending:
        if task.task_id not in accepted:
            continue
        parent = parents.get(task.slot)
        if parent is None or parent.task_id != task.parent_id:
            raise UserError(
                f"candidates: the parent of task {task.task_id} is not in slot {task.slot} of the pool; "
                "give the candidates that were made from this pool"
            )
        children[task.slot] = replace(task, status=Status.ACTIVE.value)
    for slot, root in roots.items():
        if slot not in parents or root.slot != slot or root.task_id != slot:
            raise UserError(
                f"roots: task {root.task_id} is not the root of slot {slot}; give the first pool of this run"
            )
        children.setdefault(slot, replace(root, status=Status.ACTIVE.value))
    return [children.get(task.slot, task) for task in pool]


def verdict_counts(
    verdicts: Sequence[TaskVerdict], pending: Sequence[Task], standings: Sequence[Standing], *, fields: Collection[str]
) -> dict[str, Any]:
    """Counts for the verdicts' manifest, which are also part of the iteration's metrics. `fields`: the names that edits
    may have. The expert's figures are means over the accepted tasks, null without any.
    """
    accepted = [decided for decided in verdicts if decided.accepted]
    edits = {task.task_id: task.edit for task in pending}
    expert = ("expert_success", "expert_steps")
    figures = [f"{whose}{name}" for whose in ("", "parent_", "root_") for name in expert]
    known = {name: [value for one in accepted if (value := getattr(one, name)) is not None] for name in figures}
    tallied = (
        (one.direction, edits[one.task_id], {"measured": one.rollouts > 0, "accepted": one.accepted})
        for one in verdicts
    )
    return {
        "pending": len(verdicts),
        "accepted": len(accepted),
        "accepted_harder": sum(decided.direction == Direction.HARDER for decided in accepted),
        "accepted_easier": sum(decided.direction == Direction.EASIER for decided in accepted),
        "rejected": len(verdicts) - len(accepted),
        "returned": sum(standing.decision == Decision.RETURNED for standing in standings),
        "accepted_total": sum(standing.accepted for standing in standings),
        "returned_total": sum(standing.returned for standing in standings),
        "adapted_slots": sum(standing.depth > 0 for standing in standings),
        "pool_depth_mean": fmean(standing.depth for standing in standings),
        **{name: fmean(values) if values else None for name, values in known.items()},
        "by_edit": edit_tally(tallied, fields=fields),
    }
