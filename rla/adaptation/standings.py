"""The state of every slot after an iteration (task, measurement, decision and its reason), and the next pool.

A task *leaves the band for good* if its last `return_after` measurements as an active task all lie outside of it on the
same side (too hard: accuracy < alpha_low; too easy: accuracy > alpha_high) and it is

    too hard    always
    too easy    if every edit made it easier, or at `max_depth`, where it cannot be made harder

Its slot then returns to the root, unless a task was accepted for the slot in the same iteration. Edits that only made
the root easier led up to it: once such a task is mastered, the root is next, and it is not edited further. An iteration
without episodes of the task neither counts nor interrupts the row, and neither does the measurement at which it was
accepted. After a verdict the slot rests for `cooldown` iterations, this one included; after a return, whose root is
first played in the next iteration, for the `cooldown` iterations that follow.

A row follows from the row of the iteration before and from this iteration's rollouts and verdicts alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

from rla.adaptation.accept import UNPLAYED, Measured, TaskVerdict, judge_pending, wanted_direction
from rla.adaptation.edits import Counted, edit_tally
from rla.config import Config
from rla.config.sections import AdaptationConfig
from rla.envs.protocols import HasExpert
from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.seeds import derive
from rla.store.reading import read_rows
from rla.store.records import Direction, Status, StopReason, Task

EXPERT_EPISODES = 8  # of an accepted task, its parent and its root


class Seen(NamedTuple):
    """The last measurement of the task in a slot: the iteration in which it was played, and its accuracy."""

    iteration: int
    accuracy: float


class Decision(StrEnum):
    """The decision of an iteration about a slot."""

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
    `eased`: every edit since the root made the task easier. `accepted`, `returned`: counts over the run. `seen`,
    `seen_accuracy`: the last iteration in which the present task was played, and its accuracy. `tried`: the tasks that
    were played and judged for the slot, in order; none of them is proposed again.
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
    before, empty in the first one. Raises `UserError` if they belong to another pool.
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
    """The slots whose task gives way to its root once it is mastered, and is not made harder."""
    return {standing.slot for standing in standings if standing.eased and config.return_after}


def measured_streaks(standings: Iterable[Standing]) -> dict[str, int]:
    """Slot -> number of measurements in a row on the side of the last one, that at its acceptance included."""
    return {standing.slot: max(standing.streak, 1) for standing in standings}


def last_measurements(standings: Iterable[Standing]) -> dict[str, Seen]:
    """Slot -> the last measurement of its task, if it has one."""
    return {
        standing.slot: Seen(standing.seen, standing.seen_accuracy)
        for standing in standings
        if standing.seen is not None and standing.seen_accuracy is not None
    }


def returned_slots(standings: Iterable[Standing]) -> set[str]:
    """The slots that returned to their root in the iteration of `standings`."""
    return {standing.slot for standing in standings if standing.decision == Decision.RETURNED}


def _first(task: Task) -> Standing:
    """A slot at the start of a run."""
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
    """`last` with this iteration's measurement of the slot's task, before any decision."""
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
    """Why the slot's task gives way to its root; "" if it stays."""
    root = played.depth == 0 or played.task_id == played.slot
    if root or not played.rollouts or not 0 < config.return_after <= played.streak:
        return ""
    measurements = f"in {played.streak} measurements, last accuracy {played.accuracy:.3f}"
    if played.outside == Direction.EASIER:
        return f"too hard {measurements}"
    if played.eased:
        return f"mastered {measurements}"
    return f"too easy at the depth limit {measurements}" if played.depth >= config.max_depth else ""


def pending_verdicts(
    ctx: StageContext, pending: list[Task], measured: dict[str, tuple[float, int]]
) -> list[TaskVerdict]:
    """The verdict on every pending task, by `adaptation.acceptance`."""
    asked = read_rows(ctx.path("candidates"), "candidates", ["task_id", "parent_accuracy"]) if pending else []
    config = ctx.config.adaptation
    return judge_pending(
        pending,
        measured,
        {row["task_id"]: row["parent_accuracy"] for row in asked},
        iteration=ctx.iteration,
        alpha_low=config.alpha_low,
        alpha_high=config.alpha_high,
        rule=config.acceptance,
    )


def standings_before(ctx: StageContext) -> list[Standing]:
    """The standings after the iteration before; none in the first."""
    folder = ctx.path("before")
    first = ctx.iteration <= 1 and "before" not in ctx.paths and not folder.exists()
    return [] if first else read_standings(folder)


def read_standings(folder: Path) -> list[Standing]:
    """The standings of a pool, in its order."""
    return [Standing(**{**row, "tried": tuple(row["tried"])}) for row in read_rows(folder, "standings")]


def verdict_counts(
    verdicts: Sequence[TaskVerdict], pending: Sequence[Task], standings: Sequence[Standing], *, fields: Collection[str]
) -> dict[str, Any]:
    """Counts for the verdicts' manifest, which are also part of the iteration's metrics. `fields`: the names that edits
    may have. The expert's figures are means over the accepted tasks, null without any.
    """
    accepted = [decided for decided in verdicts if decided.accepted]
    edits = {task.task_id: task.edit for task in pending}
    return {
        "pending": len(verdicts),
        "accepted": len(accepted),
        "accepted_harder": sum(decided.direction == Direction.HARDER for decided in accepted),
        "accepted_easier": sum(decided.direction == Direction.EASIER for decided in accepted),
        "rejected": len(verdicts) - len(accepted),
        "returned": len(returned_slots(standings)),
        "accepted_total": sum(standing.accepted for standing in standings),
        "returned_total": sum(standing.returned for standing in standings),
        "adapted_slots": sum(standing.depth > 0 for standing in standings),
        "pool_depth_mean": fmean(standing.depth for standing in standings),
        "expert_success": known_mean(decided.expert_success for decided in accepted),
        "expert_steps": known_mean(decided.expert_steps for decided in accepted),
        "parent_expert_success": known_mean(decided.parent_expert_success for decided in accepted),
        "parent_expert_steps": known_mean(decided.parent_expert_steps for decided in accepted),
        "root_expert_success": known_mean(decided.root_expert_success for decided in accepted),
        "root_expert_steps": known_mean(decided.root_expert_steps for decided in accepted),
        "by_edit": edit_tally(
            (
                Counted(
                    decided.direction,
                    edits[decided.task_id],
                    {"measured": decided.rollouts > 0, "accepted": decided.accepted},
                )
                for decided in verdicts
            ),
            fields=fields,
        ),
    }


def known_mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


def measured_accuracies(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, int]]:
    """task id -> (share of won episodes, episodes), without episodes that ended because their environment failed."""
    outcomes: dict[str, list[int]] = {}
    for row in rows:
        if row["stop_reason"] != StopReason.ENV_ERROR:
            outcomes.setdefault(row["task_id"], []).append(row["outcome"])
    return {task: (sum(o == 1 for o in values) / len(values), len(values)) for task, values in outcomes.items()}


def next_pool(
    pool: Sequence[Task],
    pending: Sequence[Task],
    verdicts: Iterable[TaskVerdict],
    roots: Mapping[str, Task] = MappingProxyType({}),
) -> list[Task]:
    """`pool` with every accepted task of `pending` in its parent's slot: the same slots in the same order, all active.

    `roots`: slot -> the root that returns to it; an accepted task takes precedence. A pending task without a verdict
    counts as rejected. Raises `UserError` if pool and candidates do not belong together: a slot twice in the pool, two
    accepted tasks for one slot, a parent that is not in its slot, or a root of another slot.
    """
    parents = {task.slot: task for task in pool}
    if len(parents) != len(pool):
        raise UserError("task pool: a slot holds two tasks; make the pool again with `rla make-tasks`")
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
        if task.slot in children:
            raise UserError(f"candidates: two tasks were accepted for slot {task.slot}; keep one of them")
        children[task.slot] = replace(task, status=Status.ACTIVE.value)
    for slot, root in roots.items():
        if slot not in parents or root.slot != slot or root.task_id != slot:
            raise UserError(
                f"roots: task {root.task_id} is not the root of slot {slot}; give the first pool of this run"
            )
        children.setdefault(slot, replace(root, status=Status.ACTIVE.value))
    return [children.get(task.slot, task) for task in pool]


class ExpertFigures(NamedTuple):
    """Share of won episodes, and mean number of commands over all of them."""

    success: float
    steps: float


def expert_figures(task: Task, player: HasExpert, config: Config) -> ExpertFigures:
    """EXPERT_EPISODES episodes of the expert on `task`."""
    played = [
        player.play_expert(task, config, seed=derive(config.seed, "expert", task.task_id, number))
        for number in range(EXPERT_EPISODES)
    ]
    won = fmean(demonstration.won for demonstration in played)
    return ExpertFigures(won, fmean(len(demonstration.actions) for demonstration in played))


def with_expert(
    verdicts: Iterable[TaskVerdict], tasks: Mapping[str, Task], player: HasExpert, config: Config
) -> list[TaskVerdict]:
    """`verdicts`, the accepted ones with figures from EXPERT_EPISODES episodes of the expert.

    The expert sees observations only and does not learn, so its success changes with the tasks alone, while the success
    of the policy also changes with training. Seeds depend on run, task and episode, not on the iteration: a task that
    is played again gives the same figures.

    `tasks`: task_id -> task, with parents and roots.
    """
    found: dict[str, ExpertFigures] = {}

    def figures(task_id: str) -> ExpertFigures:
        if task_id not in found:
            found[task_id] = expert_figures(tasks[task_id], player, config)
        return found[task_id]

    return [
        replace(
            verdict,
            expert_success=figures(verdict.task_id).success,
            expert_steps=figures(verdict.task_id).steps,
            parent_expert_success=figures(verdict.parent_id).success,
            parent_expert_steps=figures(verdict.parent_id).steps,
            root_expert_success=figures(verdict.slot).success,
            root_expert_steps=figures(verdict.slot).steps,
        )
        if verdict.accepted
        else verdict
        for verdict in verdicts
    ]
