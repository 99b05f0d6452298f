"""Kinds of tasks that train and that no evaluation shows: a page with three scenes may have none that is held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rla.config.sections import TasksConfig
from rla.store.records import Task


def never_held_out(made: Mapping[str, Sequence[Task]], config: TasksConfig) -> list[str]:
    """The kinds of the training split that are missing in the main held-out one, by name. Empty where not both were
    made, and where other kinds are held out on purpose. Data sets have splits of their own: they are not asked.
    """
    train, test = made.get(config.train_split), made.get(config.held_out_splits[0])
    if not train or test is None or config.test_kinds or config.source != "builtin":
        return []
    return sorted({task.kind for task in train} - {task.kind for task in test})


def told_missing(kinds: Sequence[str], config: TasksConfig) -> str:
    """What is missing, why that may be, and what can be done."""
    main, names = config.held_out_splits[0], ", ".join(kinds)
    return (
        f"{names}: no task is held out in split {main!r}, so no evaluation there shows what is learnt of this kind. It "
        f"has too few different scenes, or tasks.test_scenes ({config.test_scenes}) is too small; leave it out of "
        "tasks.kinds, or ask for more"
    )
