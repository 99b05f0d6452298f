"""Which tasks are asked to change: those outside the band, the most extreme first, within the limits."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from rla.adaptation.acceptance import wanted_direction
from rla.adaptation.drafting import Choice
from rla.adaptation.selection import choose
from rla.config.sections import AdaptationConfig
from rla.store.records import Direction, Status, Task
from tests.unit.adaptation.builders import task

BAND = AdaptationConfig(alpha_low=0.2, alpha_high=0.8, max_tasks=16, max_depth=4)


def chosen(
    pool: list[Task],
    accuracies: dict[str, float],
    *,
    config: AdaptationConfig = BAND,
    resting: Collection[str] = (),
    leading: Collection[str] = (),
    seed: int = 0,
) -> list[str]:
    picked = choose(pool, accuracies, config=config, resting=resting, leading=leading, seed=seed)
    return [choice.task.slot for choice in picked]


@pytest.mark.parametrize(
    ("accuracy", "direction"),
    [
        (1.0, Direction.HARDER),
        (0.81, Direction.HARDER),
        (0.19, Direction.EASIER),
        (0.0, Direction.EASIER),
    ],
)
def test_the_direction_leads_back_into_the_band(accuracy: float, direction: Direction | None) -> None:
    assert wanted_direction(accuracy, AdaptationConfig(alpha_low=0.2, alpha_high=0.8)) is direction


@pytest.mark.parametrize("rollouts", [5, 10, 15, 20])
def test_a_share_of_exactly_a_bound_lies_in_the_band(rollouts: int) -> None:
    for wins in (rollouts // 5, 4 * rollouts // 5):
        assert wanted_direction(wins / rollouts, AdaptationConfig(alpha_low=0.2, alpha_high=0.8)) is None


def test_a_choice_carries_task_direction_and_accuracy() -> None:
    easy, hard, fair, unplayed = (task(name) for name in ("easy", "hard", "fair", "unplayed"))
    picked = choose([fair, easy, hard, unplayed], {"easy": 0.875, "hard": 0.0, "fair": 0.5}, config=BAND, seed=0)
    # distances from the middle 0.5: hard 0.5, easy 0.375
    assert picked == [Choice(hard, Direction.EASIER, 0.0), Choice(easy, Direction.HARDER, 0.875)]


def test_at_most_max_tasks_are_chosen() -> None:
    pool = [task(name) for name in ("a", "b", "c", "d")]
    accuracies = {"a": 0.8, "b": 1.0, "c": 0.9, "d": 0.85}
    two = AdaptationConfig(max_tasks=2)
    assert chosen(pool, accuracies, config=two) == ["b", "c"]
    fewer = choose(pool, accuracies, config=BAND, limit=1, seed=0)
    assert [choice.task.slot for choice in fewer] == ["b"]
    assert len(choose(pool, accuracies, config=two, limit=3, seed=0)) == 2


def test_ties_are_drawn_by_seed_not_by_position() -> None:
    pool = [task(f"s{n}") for n in range(8)]
    accuracies = {t.task_id: 1.0 for t in pool}
    orders = {tuple(chosen(pool, accuracies, seed=seed)) for seed in range(5)}
    assert len(orders) > 1
    assert chosen(pool, accuracies, seed=3) == chosen(pool[::-1], accuracies, seed=3)


def test_resting_slots_deep_tasks_and_pending_ones_are_left_alone() -> None:
    deep = task("deep", task_id="d4", depth=4)
    waiting = task("waiting", status=Status.PENDING)
    pool = [task("rests"), deep, waiting, task("deep3", task_id="d3", depth=3)]
    accuracies = {"rests": 1.0, "d4": 1.0, "waiting": 1.0, "d3": 1.0}
    assert chosen(pool, accuracies, resting={"rests"}) == ["deep3"]


def test_a_task_that_will_give_way_to_its_root_is_not_made_harder() -> None:
    pool = [task("a", task_id="a-1", depth=1), task("b", task_id="b-1", depth=1)]
    assert chosen(pool, {"a-1": 1.0, "b-1": 1.0}, leading={"a"}) == ["b"]
    assert chosen(pool, {"a-1": 0.0, "b-1": 0.5}, leading={"a"}) == ["a"]
