"""Tasks of a pool and candidates, by their slot."""

from __future__ import annotations

from rla.adaptation.acceptance import TaskVerdict
from rla.store.records import Direction, Status, Task


def task(slot: str, *, task_id: str | None = None, depth: int = 0, status: Status = Status.ACTIVE) -> Task:
    """The task that occupies `slot`; a root unless it has an id of its own."""
    return Task(
        task_id=task_id or slot,
        env="alfworld",
        split="train",
        slot=slot,
        kind="pick_and_place_simple",
        scene="kitchen-1",
        instruction="put a mug in desk.",
        payload="{}",
        status=status.value,
        depth=depth,
    )


def pending(slot: str, *, task_id: str, parent_id: str | None = None, direction: str | None = "harder") -> Task:
    """A candidate for `slot` whose parent is the slot's root unless another is named."""
    return Task(
        task_id=task_id,
        env="alfworld",
        split="train",
        slot=slot,
        kind="pick_heat_then_place_in_recep",
        scene="kitchen-1",
        instruction="put a hot mug in desk.",
        payload="{}",
        status=Status.PENDING.value,
        parent_id=parent_id or slot,
        depth=1,
        created=1,
        direction=direction,
    )


def lineage(slot: str, edits: int) -> Task:
    """The task that holds `slot` after so many edits: the root itself, then `<slot>-1`, `<slot>-2`."""
    return task(slot) if not edits else task(slot, task_id=f"{slot}-{edits}", depth=edits)


def verdict_on(candidate: Task, *, accepted: bool, iteration: int = 2) -> TaskVerdict:
    return TaskVerdict(
        task_id=candidate.task_id,
        parent_id=candidate.parent_id or "",
        slot=candidate.slot,
        iteration=iteration,
        direction=Direction.HARDER.value,
        rule="paper",
        parent_accuracy=1.0,
        accuracy=0.5,
        rollouts=8,
        accepted=accepted,
        reason="harder",
    )
