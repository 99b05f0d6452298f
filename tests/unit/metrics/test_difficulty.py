"""Accuracy and importance ratio of tasks, from outcomes that can be counted by eye."""

from __future__ import annotations

import pytest

from rla.metrics.diagnostics import balance, difficulty
from tests.unit.credit.builders import episodes


def outcomes(**tasks: tuple[int, int]) -> dict[str, int]:
    """`q=(1, 3)`: task q was won once and lost three times."""
    return {f"{q}/{n}": 1 if n < won else -1 for q, (won, lost) in tasks.items() for n in range(won + lost)}


def test_the_ratio_of_a_task() -> None:
    # accuracies 1/4 -> 3, 2/3 -> 2, 1/2 -> 1; of tasks that are always won or always lost it has no bound
    table = difficulty(episodes(outcomes(a=(1, 3), b=(2, 1), c=(1, 1), d=(1, 0), e=(0, 2))))
    assert table["task_id"].to_list() == ["a", "b", "c", "d", "e"]
    assert table["importance_ratio"].to_list() == [pytest.approx(3), pytest.approx(2), pytest.approx(1), None, None]


def test_median_and_maximum_are_of_the_tasks_that_have_a_ratio() -> None:
    # Ratios 1, 2, 3. Two of five tasks have none.
    found = balance(episodes(outcomes(a=(1, 3), b=(2, 1), c=(1, 1), d=(1, 0), e=(0, 2))))
    assert found == {
        "importance_ratio_median": pytest.approx(2),
        "importance_ratio_max": pytest.approx(3),
        "one_sided_tasks": pytest.approx(2 / 5),
    }
    assert set(balance(episodes(outcomes(d=(1, 0)))).values()) == {None, 1.0}
    assert set(balance(episodes({})).values()) == {None}
