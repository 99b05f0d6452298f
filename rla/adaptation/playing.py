"""Which tasks an iteration plays: the pending ones, their parents where they are compared, and a sample of the rest.

    n = tasks_per_iteration     pending beside: n active tasks, and the pending ones besides
                                pending within: n tasks in all, the pending ones first
    acceptance: interval        the parents of the pending tasks are the first of the active ones

The sample is drawn from the free slots by `sampling`:

    uniform             every slot alike
    learnability        ceil(REVISIT * n) slots that were not seen for longest, never seen ones first, and the others
                        by weight a (1 - a), a being the accuracy of the slot's task when it was played last

A task that is always won or always lost teaches nothing now: its weight is 0, and it comes back when its turn among the
long unseen comes. A uniform draw from thousands of slots plays each less than once in a run, so that no task is ever
changed twice. The variance a (1 - a) of the outcome is what a policy gradient has to learn from (Foster and Foerster,
Learning to Reason at the Frontier of Learnability, 2025).

`slots` > 0: the sample is drawn from that many slots of the pool, which the run keeps: accepted tasks are met again.
`fill: mixed`: further tasks, drawn alike, stand by (`rla.rollouts.trajectory_shard`).

So `within` plays as many episodes with adaptation as without. No more tasks are asked for than there are `places` for;
where the places were made fewer since, the last pending tasks are not played.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import ceil, log
from types import MappingProxyType
from typing import NamedTuple

from rla.adaptation.accept import Rule
from rla.config.sections import RolloutConfig
from rla.seeds import derive
from rla.store.records import Task

REVISIT = 0.25  # share of the tasks that is drawn among those not seen for longest
MIXED_BUDGET = 3  # `fill: mixed` plays at most so many times `tasks_per_iteration` active tasks


class Seen(NamedTuple):
    """The last measurement of the task that holds a slot: the iteration in which it was played, and its accuracy."""

    iteration: int
    accuracy: float


def drawn_tasks(
    free: Sequence[Task], count: int, *, config: RolloutConfig, seen: Mapping[str, Seen], seed: int
) -> list[Task]:
    """At most `count` of the tasks `free`, by `config.sampling`. `seen`: slot -> its last measurement, if any."""
    count = max(0, min(count, len(free)))
    if config.sampling == "uniform":
        return random.Random(seed).sample(free, count)
    rng = random.Random(seed)
    lots = {task.slot: (rng.random(), 1 - rng.random()) for task in free}  # the second lies above 0: it has a logarithm
    oldest = sorted(free, key=lambda task: (last_seen(task, seen), lots[task.slot][0]))
    again = oldest[: ceil(REVISIT * count)]
    weights = {task.slot: weight for task in oldest[len(again) :] if (weight := learnability(seen.get(task.slot))) > 0}
    # The slots of the largest log(u) / w are a draw without replacement by weight (Efraimidis and Spirakis, 2006).
    likely = sorted(weights, key=lambda slot: -log(lots[slot][1]) / weights[slot])[: count - len(again)]
    by_slot = {task.slot: task for task in free}
    drawn = again + [by_slot[slot] for slot in likely]
    taken = {task.slot for task in drawn}
    return drawn + [task for task in oldest if task.slot not in taken][: count - len(drawn)]


def learnability(seen: Seen | None) -> float:
    """a (1 - a); 0 where nothing was measured."""
    return 0.0 if seen is None else seen.accuracy * (1 - seen.accuracy)


def last_seen(task: Task, seen: Mapping[str, Seen]) -> int:
    """The iteration in which the slot was played last; -1: never."""
    return seen[task.slot].iteration if task.slot in seen else -1


def places(config: RolloutConfig, acceptance: Rule) -> int | None:
    """How many pending tasks an iteration can play; None: as many as there are."""
    compared = acceptance == "interval"
    if config.pending == "within":
        return config.tasks_per_iteration // 2 if compared else config.tasks_per_iteration
    return config.tasks_per_iteration if compared else None


def tasks_to_play(
    pool: Sequence[Task],
    pending: Sequence[Task],
    *,
    config: RolloutConfig,
    acceptance: Rule,
    seed: int,
    run_seed: int,
    seen: Mapping[str, Seen] = MappingProxyType({}),
) -> list[Task]:
    """Parents to compare with, the sample of slots in which nothing is pending, then the pending tasks by id.

    `seed` is that of the iteration; `run_seed` draws the slots that the whole run plays. `seen`: slot -> its last
    measurement, which `sampling: learnability` draws by.
    """
    return tasks_and_reserve(
        pool, pending, config=config, acceptance=acceptance, seed=seed, run_seed=run_seed, seen=seen
    )[0]


def tasks_and_reserve(
    pool: Sequence[Task],
    pending: Sequence[Task],
    *,
    config: RolloutConfig,
    acceptance: Rule,
    seed: int,
    run_seed: int,
    seen: Mapping[str, Seen],
) -> tuple[list[Task], list[Task]]:
    """What `tasks_to_play` gives, and the further tasks that `fill: mixed` may play, in order; none without it."""
    played = pending[: places(config, acceptance)]
    active = config.tasks_per_iteration - (len(played) if config.pending == "within" else 0)
    wanted = {task.parent_id for task in played} if acceptance == "interval" else set()
    waiting = {task.slot for task in played}
    parents = sorted((task for task in pool if task.task_id in wanted), key=lambda task: task.slot)
    own = own_slots(pool, config.slots, run_seed)
    free = sorted((task for task in pool if task.slot in own - waiting), key=lambda task: task.slot)
    drawn = drawn_tasks(free, active - len(parents), config=config, seen=seen, seed=seed)
    first = parents + drawn + sorted(played, key=lambda task: task.task_id)
    if config.fill == "tasks":
        return first, []
    taken = {task.slot for task in (*drawn, *parents)}
    left = [task for task in free if task.slot not in taken]
    most = MIXED_BUDGET * config.tasks_per_iteration - len(parents) - len(drawn)
    return first, drawn_tasks(left, most, config=config, seen=seen, seed=derive(seed, "reserve"))


def own_slots(pool: Sequence[Task], count: int, seed: int) -> set[str]:
    """The slots that a run plays: `count` of them drawn by its seed, or all."""
    slots = sorted(task.slot for task in pool)
    return set(random.Random(seed).sample(slots, count) if 0 < count < len(slots) else slots)
