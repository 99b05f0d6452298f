"""The next task pool: accepted tasks take the place of their parents, slot by slot, and some go back to their root.

Invariant: the next pool has the same slots in the same order, each exactly once, all active.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from rla.adaptation.accept import TaskVerdict
from rla.errors import UserError
from rla.store.records import Status, Task


def next_pool(
    pool: Sequence[Task],
    pending: Sequence[Task],
    verdicts: Iterable[TaskVerdict],
    roots: Mapping[str, Task] = MappingProxyType({}),
) -> list[Task]:
    """`pool` with every accepted task of `pending` in its parent's slot, its status active.

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
