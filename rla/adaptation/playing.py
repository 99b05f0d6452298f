"""Which tasks an iteration plays: the pending ones, their parents where they are compared, and a sample of the rest.

    n = tasks_per_iteration     pending beside: n active tasks, and the pending ones besides
                                pending within: n tasks in all, the pending ones first
    acceptance: interval        the parents of the pending tasks are the first of the active ones

The sample is drawn as `rla.adaptation.sampling` says. `slots` > 0: it is drawn from that many slots of the pool, which
the run keeps: accepted tasks are met again. `fill: mixed`: further tasks, drawn alike, stand by
(`rla.rollouts.trajectory_shard`).

So `within` plays as many episodes with adaptation as without. No more tasks are asked for than there are `places` for;
where the places were made fewer since, the last pending tasks are not played.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rla.adaptation.accept import Rule
from rla.adaptation.sampling import Seen, drawn_tasks
from rla.config.sections import RolloutConfig
from rla.seeds import derive
from rla.store.records import Task


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
    most = (config.most_tasks or 3 * config.tasks_per_iteration) - len(parents) - len(drawn)
    return first, drawn_tasks(left, most, config=config, seen=seen, seed=derive(seed, "reserve"))


def own_slots(pool: Sequence[Task], count: int, seed: int) -> set[str]:
    """The slots that a run plays: `count` of them drawn by its seed, or all."""
    slots = sorted(task.slot for task in pool)
    return set(random.Random(seed).sample(slots, count) if 0 < count < len(slots) else slots)
