"""The tasks that exist, as what a proposed one may not equal: their ids and, within a scene, their likenesses.

Held-out tasks are among them: a change that equals one would train on what is evaluated.

Two tasks are alike where they ask the same in the same state of a scene. That is looked up per scene when it is asked
for: a pool of thousands of games is not read through for a few proposals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from rla.pipeline.context import StageContext
from rla.store.layout import artifact, held_out_root
from rla.store.pools import read_tasks
from rla.store.records import Task
from rla.store.slices import is_complete


class Likening(Protocol):
    """The part of `rla.envs.protocols.Adapts` that compares tasks."""

    def likeness(self, task: Task) -> str: ...


class Taken:
    """`of(task)`: ids and likenesses that a change of `task` must differ from."""

    def __init__(self, likening: Likening, tasks: Iterable[Task]) -> None:
        self._likening = likening
        self._ids: set[str] = set()
        self._scenes: dict[str, list[Task]] = {}
        self._alike: dict[str, set[str]] = {}
        self.add(*tasks)

    def add(self, *tasks: Task) -> None:
        for task in tasks:
            if task.task_id in self._ids:
                continue
            self._ids.add(task.task_id)
            self._scenes.setdefault(task.scene, []).append(task)

    def of(self, task: Task) -> set[str]:
        """All ids, and the likenesses of the tasks in the scene of `task`."""
        known = self._alike.setdefault(task.scene, set())
        known.update(self._likening.likeness(other) for other in self._scenes.pop(task.scene, ()))
        return self._ids | known


def held_out_tasks(ctx: StageContext) -> Iterator[Task]:
    """The tasks of all held-out splits of the run whose pools are there.

    They are no input that a shard of candidates names: other held-out tasks leave what was trained as it is.
    """
    splits = ctx.config.tasks.held_out_splits
    for split in splits:
        folder = artifact(held_out_root(ctx.run, splits, split), "test_tasks", 0)
        if is_complete(folder):
            yield from read_tasks(folder)
