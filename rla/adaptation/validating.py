"""Verdicts on pending tasks and how every slot stands, from the folders of an iteration alone: the pool and its
standings as the last iteration left them, the candidates, this iteration's trajectories, and the roots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

from rla.adaptation.accept import TaskVerdict, judge_pending
from rla.adaptation.kinds import Counted, edit_tally
from rla.adaptation.standings import Standing, returned_slots
from rla.config import Config
from rla.envs.protocols import HasExpert
from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.seeds import derive
from rla.store.reading import read_rows
from rla.store.records import Direction, Status, StopReason, Task

EXPERT_EPISODES = 8  # of an accepted task, its parent and its root


def pending_verdicts(
    ctx: StageContext, pending: list[Task], measured: dict[str, tuple[float, int]]
) -> list[TaskVerdict]:
    """The verdict on every pending task, by the rule of the config."""
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
    """How the slots stood after the iteration before; at the first nothing has happened to any."""
    folder = ctx.path("before")
    first = ctx.iteration <= 1 and "before" not in ctx.paths and not folder.exists()
    return [] if first else read_standings(folder)


def read_standings(folder: Path) -> list[Standing]:
    """How the slots of a pool stand, in its order."""
    return [Standing(**{**row, "tried": tuple(row["tried"])}) for row in read_rows(folder, "standings")]


def verdict_counts(
    verdicts: Sequence[TaskVerdict], pending: Sequence[Task], standings: Sequence[Standing], *, fields: Collection[str]
) -> dict[str, Any]:
    """The counts of the verdicts' manifest, which are also part of the iteration's metrics. `fields`: those of edits.
    The expert's figures are means over the accepted tasks, null where none was.
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
    """task id -> (share of won episodes, episodes); episodes that the environment broke do not count."""
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
    """`pool` with every accepted task of `pending` in its parent's slot. It has the same slots in the same order, each
    once, and all tasks are active.

    `roots`: slot -> the root that takes its place again; an accepted task goes before it. A pending task without a
    verdict counts as rejected. Raises `UserError` where pool and candidates do not belong together: a slot twice in the
    pool, two accepted tasks for one slot, a parent that is not in its slot, or a root of another slot.
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
    following = [children.get(task.slot, task) for task in pool]
    if [task.slot for task in following] != [task.slot for task in pool]:
        raise AssertionError("the pool lost a slot")
    return following


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
    """`verdicts`, the accepted ones with the figures of EXPERT_EPISODES episodes.

    The expert sees observations only and learns nothing, so its success moves with the tasks alone, while that of the
    policy moves with what it has learnt. It plays the commands that the policy is offered; seeds depend on run, task
    and episode, not on the iteration: a task that is played again gives the same figures.

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
