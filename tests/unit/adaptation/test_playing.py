"""Which tasks are played, with ten slots, two of them with a pending task, and four places."""

from __future__ import annotations

from typing import Any

import pytest

from rla.adaptation.selection import tasks_and_reserve
from rla.config.sections import RolloutConfig
from rla.store.records import Task
from tests.unit.adaptation.builders import pending, task

POOL = [task(f"s{n}") for n in range(10)]
PENDING = [pending("s7", task_id="y"), pending("s3", task_id="x")]  # in the order in which they were chosen


def tasks_to_play(pool: list[Task], waiting: list[Task], **options: Any) -> list[Task]:
    return tasks_and_reserve(pool, waiting, **options)[0]


def played(places: int, how: str, acceptance: str) -> tuple[list[str], list[str], int]:
    """(parents, pending, sampled others) of four places."""
    config = RolloutConfig(tasks_per_iteration=places, pending="within" if how == "within" else "beside")
    rule = "interval" if acceptance == "interval" else "paper"
    tasks = tasks_to_play(POOL, PENDING, config=config, acceptance=rule, seed=1, run_seed=1)
    names = [t.task_id for t in tasks]
    assert len(set(names)) == len(names)
    slots = {t.slot for t in tasks if t.parent_id}
    parents = [name for name in names if name in slots]
    return parents, [n for n in names if n in ("x", "y")], len(names) - len(parents) - len(slots)


@pytest.mark.parametrize(
    ("places", "how", "acceptance", "expected"),
    [
        (4, "beside", "paper", ([], ["x", "y"], 4)),  # six tasks
        (4, "beside", "interval", (["s3", "s7"], ["x", "y"], 2)),  # six, the parents among the four
        (1, "beside", "interval", (["s7"], ["y"], 0)),  # a parent has to be played: the second is not
        (4, "within", "paper", ([], ["x", "y"], 2)),  # four in all
        (4, "within", "interval", (["s3", "s7"], ["x", "y"], 0)),
        (3, "within", "interval", (["s7"], ["y"], 1)),
        (1, "within", "paper", ([], ["y"], 0)),
        (50, "beside", "paper", ([], ["x", "y"], 8)),  # no more than there are
    ],
)
def test_places(places: int, how: str, acceptance: str, expected: tuple[list[str], list[str], int]) -> None:
    assert played(places, how, acceptance) == expected


def test_the_slot_of_a_task_that_finds_no_place_may_be_sampled() -> None:
    config = RolloutConfig(tasks_per_iteration=10, pending="within")
    few = [*PENDING, *(pending(f"s{n}", task_id=f"p{n}") for n in (0, 1, 2, 4, 5, 6, 8, 9))]
    names = [t.task_id for t in tasks_to_play(POOL, few, config=config, acceptance="interval", seed=1, run_seed=1)]
    assert len(names) == 10 and sum(name.startswith("s") for name in names) == 5
    assert [
        t.task_id for t in tasks_to_play(POOL, few, config=config, acceptance="interval", seed=1, run_seed=1)
    ] == names


def test_without_pending_tasks_all_settings_play_the_same_sample() -> None:
    samples = {
        tuple(t.task_id for t in tasks_to_play(POOL, [], config=config, acceptance=acceptance, seed=5, run_seed=1))
        for config in (RolloutConfig(tasks_per_iteration=4), RolloutConfig(tasks_per_iteration=4, pending="within"))
        for acceptance in ("paper", "interval")
    }
    assert len(samples) == 1


def test_a_run_may_play_few_slots_of_its_own_in_every_iteration() -> None:
    config = RolloutConfig(tasks_per_iteration=2, slots=3)

    def seen(run_seed: int) -> set[str]:
        played = (
            tasks_to_play(POOL, [], config=config, acceptance="paper", seed=n, run_seed=run_seed) for n in range(30)
        )
        return {one.slot for tasks in played for one in tasks}

    assert len(seen(1)) == 3 and seen(1) == seen(1) != seen(2)


def test_a_pending_task_of_any_slot_is_played() -> None:
    config = RolloutConfig(tasks_per_iteration=2, slots=1, pending="within")
    played = tasks_to_play(POOL, PENDING, config=config, acceptance="paper", seed=1, run_seed=1)
    assert [one.task_id for one in played] == ["x", "y"]


def test_the_reserve_has_further_slots_up_to_the_budget() -> None:
    config = RolloutConfig(tasks_per_iteration=3, fill="mixed")
    waiting = [pending("s7", task_id="y")]
    first, reserve = tasks_and_reserve(POOL, waiting, config=config, acceptance="paper", seed=1, run_seed=1)
    assert len(first) == 4 and len(reserve) == 6
    slots = [one.slot for one in (*first, *reserve)]
    assert len(set(slots)) == 10 and slots.count("s7") == 1  # the pending one alone
    plain = RolloutConfig(tasks_per_iteration=3)
    assert tasks_and_reserve(POOL, waiting, config=plain, acceptance="paper", seed=1, run_seed=1) == (
        first,
        [],
    )
    wide = RolloutConfig(tasks_per_iteration=2, fill="mixed")
    assert len(tasks_and_reserve(POOL, [], config=wide, acceptance="paper", seed=1, run_seed=1)[1]) == 4
