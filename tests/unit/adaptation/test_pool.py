"""The pool keeps its slots: accepted tasks replace their parents, everything else stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla.adaptation.acceptance import next_pool
from rla.errors import UserError
from rla.store.records import Status
from tests.unit.adaptation.builders import pending, task, verdict_on


def test_an_accepted_task_takes_its_parents_place_and_becomes_active() -> None:
    pool = [task("a"), task("b"), task("c")]
    child = pending("b", task_id="b1")
    following = next_pool(pool, [child], [verdict_on(child, accepted=True)])
    assert [t.task_id for t in following] == ["a", "b1", "c"]
    assert following[1].status == Status.ACTIVE
    assert (following[1].slot, following[1].parent_id, following[1].depth) == ("b", "b", 1)


def test_a_rejected_task_and_one_without_verdict_leave_the_pool_as_it_was() -> None:
    pool = [task("a"), task("b")]
    rejected, unjudged = pending("a", task_id="a1"), pending("b", task_id="b1")
    assert next_pool(pool, [rejected, unjudged], [verdict_on(rejected, accepted=False)]) == pool


def test_a_task_that_was_adapted_before_can_be_replaced_again() -> None:
    pool = [task("a", task_id="a1", depth=1)]
    child = pending("a", task_id="a2", parent_id="a1")
    assert [t.task_id for t in next_pool(pool, [child], [verdict_on(child, accepted=True)])] == ["a2"]


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_no_verdicts_lose_or_reorder_a_slot(accepted: list[bool]) -> None:
    pool = [task(f"s{n}") for n in range(len(accepted))]
    children = [pending(t.slot, task_id=f"{t.slot}-child") for t in pool]
    verdicts = [verdict_on(child, accepted=yes) for child, yes in zip(children, accepted, strict=True)]
    following = next_pool(pool, children[::-1], verdicts)
    assert [t.slot for t in following] == [t.slot for t in pool]
    assert [t.depth == 1 for t in following] == accepted


def test_a_root_comes_back_active_unless_a_task_was_accepted_in_its_slot() -> None:
    pool = [task("a", task_id="a2", depth=2), task("b", task_id="b1", depth=1)]
    child = pending("b", task_id="b2", parent_id="b1")
    roots = {"a": task("a"), "b": task("b")}
    following = next_pool(pool, [child], [verdict_on(child, accepted=True)], roots)
    assert [(t.task_id, t.depth, t.status) for t in following] == [("a", 0, "active"), ("b2", 1, "active")]


def test_a_root_of_another_slot_is_refused() -> None:
    with pytest.raises(UserError, match="task b is not the root of slot a"):
        next_pool([task("a", task_id="a1", depth=1)], [], [], {"a": task("b")})
    with pytest.raises(UserError, match="task z is not the root of slot z"):
        next_pool([task("a")], [], [], {"z": task("z")})


def test_candidates_of_another_pool_are_refused() -> None:
    stranger = pending("z", task_id="z1")
    with pytest.raises(UserError, match="parent of task z1 is not in slot z"):
        next_pool([task("a")], [stranger], [verdict_on(stranger, accepted=True)])
    stale = pending("a", task_id="a2", parent_id="a1")
    with pytest.raises(UserError, match="parent of task a2 is not in slot a"):
        next_pool([task("a")], [stale], [verdict_on(stale, accepted=True)])
