"""The tasks that a server offers, and which of them a reset selects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.envs.protocols import Imports, need
from rla.envs.registry import environment
from rla.errors import UserError
from rla.store.reading import read_tasks
from rla.store.records import Task
from rla_bridges.serving.openenv_messages import BadMessage, Data, name_at, number_at

TYPES = {"train": "train", "test": "test"}  # of splits, in the protocol's words; all others are for validation


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTasks:
    """Tasks by split, in the order of their ids. The first split is the default for a reset."""

    splits: Mapping[str, tuple[Task, ...]]
    by_id: Mapping[str, Task]

    def chosen(self, data: Data, *, turns: Iterator[int]) -> Task:
        """The task of a reset: by `task_id`; by `index`; by an `episode_id` that is a task's id; by `seed` modulo the
        number of tasks; otherwise by the next of `turns`. Raises BadMessage.
        """
        task_id, episode = name_at(data, "task_id"), name_at(data, "episode_id")
        index, seed = number_at(data, "index"), number_at(data, "seed")
        tasks = self.of_split(name_at(data, "split"))
        if task_id is not None:
            if task_id not in self.by_id:
                raise BadMessage("VALIDATION_ERROR", "there is no task with this task_id")
            return self.by_id[task_id]
        if index is not None:
            if index >= len(tasks):
                raise BadMessage("VALIDATION_ERROR", f"index must be below {len(tasks)}")
            return tasks[index]
        if episode is not None and episode in self.by_id:
            return self.by_id[episode]
        return tasks[(next(turns) if seed is None else seed) % len(tasks)]

    def of_split(self, split: str | None) -> tuple[Task, ...]:
        """Raises BadMessage if the split does not exist."""
        named = next(iter(self.splits)) if split is None else split
        if named not in self.splits:
            raise BadMessage("VALIDATION_ERROR", f"split must be {' or '.join(self.splits)}")
        return self.splits[named]

    def described(self) -> list[dict[str, str]]:
        """The splits as the protocol lists them."""
        return [{"name": name, "type": TYPES.get(name, "validation")} for name in self.splits]


def task_card(task: Task, index: int) -> dict[str, Any]:
    """The public part of a task, without its payload, which may hold a solution."""
    shown = ("split", "kind", "instruction", "status", "depth", "parent_id")
    return {"id": task.task_id, "index": index} | {name: getattr(task, name) for name in shown}


def served_tasks(
    config: Config, *, split: str | None, pool: Path | None, note: Callable[[str], None] | None = None
) -> ServedTasks:
    """The tasks of `split` or of all splits, from a pool or the environment's own. Raises UserError without any."""
    if pool is not None:
        tasks = [task for task in read_tasks(pool) if split in (None, task.split)]
        strange = next((task.env for task in tasks if task.env != config.env.name), None)
        if strange is not None:
            raise UserError(f"{pool}: its tasks are of {strange}, not of {config.env.name}; give --env {strange}")
    else:
        splits = (config.tasks.train_split, *config.tasks.test_splits) if split is None else (split,)
        tasks = [task for name in dict.fromkeys(splits) for task in own_tasks(config, name, note)]
    if not tasks:
        raise UserError(
            f"{pool or config.env.name}: no task of split {split!r}; correct --split, or tasks.* in the params"
        )
    grouped = dict[str, list[Task]]()
    for task in tasks:
        grouped.setdefault(task.split, []).append(task)
    ordered = {name: tuple(sorted(group, key=lambda task: task.task_id)) for name, group in grouped.items()}
    return ServedTasks(splits=ordered, by_id={task.task_id: task for task in tasks})


def own_tasks(config: Config, split: str, note: Callable[[str], None] | None) -> list[Task]:
    """The tasks of a split as `rla make-tasks` makes them."""
    chosen = environment(config.env.name)
    if not config.tasks.path:
        return chosen.tasks(config, split=split, seed=config.seed)
    return need(chosen, Imports, "rla env serve").import_tasks(config, split=split, tell=note)
