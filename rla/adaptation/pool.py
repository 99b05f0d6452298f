"""The next task pool: accepted tasks take the place of their parents, slot by slot.

Invariant: the next pool has the same slots in the same order, each exactly once, all active.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rla.adaptation.accept import TaskVerdict
from rla.errors import UserError
from rla.records import Status, Task


def next_pool(pool: Sequence[Task], pending: Sequence[Task], verdicts: Iterable[TaskVerdict]) -> list[Task]:
    """`pool` with every accepted task of `pending` in its parent's slot, its status active.

    A pending task without a verdict counts as rejected. Raises `UserError` where pool and candidates do not
    belong together: a slot twice in the pool, two accepted tasks for one slot, or a parent that is not in
    its slot.
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
    following = [children.get(task.slot, task) for task in pool]
    if [task.slot for task in following] != [task.slot for task in pool]:
        raise AssertionError("the pool lost a slot")
    return following
