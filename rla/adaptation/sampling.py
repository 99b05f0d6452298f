"""How an iteration draws its active tasks from the slots that are free.

    uniform        every slot alike
    learnability   ceil(revisit * n) slots that were not seen for longest, never seen ones first, and the others by
                   weight a (1 - a), a being the accuracy of the slot's task when it was played last

A task that is always won or always lost teaches nothing now: its weight is 0, and it comes back when its turn among the
long unseen comes. A uniform draw from thousands of slots plays each less than once in a run, so that no task is ever
changed twice. The variance a (1 - a) of the outcome is what a policy gradient has to learn from (Foster and Foerster,
Learning to Reason at the Frontier of Learnability, 2025).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import ceil, log
from typing import NamedTuple

from rla.config.sections import RolloutConfig
from rla.store.records import Task


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
    again = oldest[: ceil(config.revisit * count)]
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
