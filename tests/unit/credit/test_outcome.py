"""O standardised over the task's trajectories, the same for every step."""

from __future__ import annotations

from math import sqrt

import pytest

from rla.credit.estimators import POLICY_REWARDS, accuracies, outcome_advantages
from tests.unit.credit.builders import episodes, steps, values


def test_each_trajectory_counts_once_whatever_its_length() -> None:
    # One win, two losses: mean -1/3, variance 1 - 1/9 = 8/9.
    # A = (4/3) / sqrt(8/9) = sqrt(2) and (-2/3) / sqrt(8/9) = -1/sqrt(2)
    found = outcome_advantages(
        episodes({"q/a": 1, "q/b": -1, "q/c": -1}),
        steps({"q/a": [[1]], "q/b": [[1], [-1]], "q/c": [[-1], [-1], [None]]}),
    )
    assert values(found, "advantage") == pytest.approx(
        {
            ("q/a", 0): sqrt(2),
            **{("q/b", step): -1 / sqrt(2) for step in range(2)},
            **{("q/c", step): -1 / sqrt(2) for step in range(3)},
        }
    )
    assert values(found, "reward")[("q/c", 2)] == -1.0
    assert values(found, "mean_score")[("q/b", 1)] == -1.0
    assert found.schema == POLICY_REWARDS


def test_always_won_never_won_and_played_once_teach_nothing() -> None:
    outcomes = {"won/a": 1, "won/b": 1, "lost/a": -1, "lost/b": -1, "once/a": 1}
    found = outcome_advantages(episodes(outcomes), steps({name: [[1]] for name in outcomes}))
    assert set(found["advantage"]) == {0.0}
    assert found.height == 5


def test_accuracies_are_shares_per_task() -> None:
    outcomes = {"q/a": 1, "q/b": -1, "q/c": -1, "q/d": -1, "p/a": 1}
    assert accuracies(episodes(outcomes)).rows() == [("p", 1, 1.0), ("q", 4, 0.25)]
