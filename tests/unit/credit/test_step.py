"""R_i = mean_j S_ij alone, standardised over the task's trajectories at the same step index."""

from __future__ import annotations

from math import sqrt

import polars as pl
import pytest

from rla.credit.estimators import POLICY_REWARDS, step_advantages
from tests.unit.credit.builders import episodes, steps, values


def test_the_outcome_changes_nothing() -> None:
    # Means 1, 1/3, -1: average 1/9, variance (1 + 1/9 + 1) / 3 - 1/81 = 57/81 - 1/81 = 56/81.
    votes = {"q/a": [[1, 1, 1]], "q/b": [[1, 1, -1]], "q/c": [[-1, -1, -1]]}
    spread = sqrt(56 / 81)
    expected = {("q/a", 0): (8 / 9) / spread, ("q/b", 0): (2 / 9) / spread, ("q/c", 0): (-10 / 9) / spread}
    for outcomes in ({"q/a": 1, "q/b": -1, "q/c": -1}, {"q/a": -1, "q/b": -1, "q/c": -1}):
        found = step_advantages(episodes(outcomes), steps(votes))
        assert values(found, "advantage") == pytest.approx(expected)
        assert found.schema == POLICY_REWARDS
    assert values(found, "reward")[("q/b", 0)] == pytest.approx(1 / 3)


def test_a_step_without_a_valid_judgement_is_no_sample() -> None:
    # Of the means 1, none, -1 the average is 0 and the deviation 1: the unread step moves neither.
    found = step_advantages(
        episodes({"q/a": 1, "q/b": 1, "q/c": -1}), steps({"q/a": [[1]], "q/b": [[None]], "q/c": [[-1]]})
    )
    assert values(found, "advantage") == {("q/a", 0): 1.0, ("q/b", 0): 0.0, ("q/c", 0): -1.0}
    assert values(found, "reward")[("q/b", 0)] == 0.0
    assert values(found, "mean_score")[("q/b", 0)] is None


def test_a_group_of_one_and_a_group_without_spread_have_advantage_zero() -> None:
    votes = {"q/a": [[1], [1]], "q/b": [[1], [1], [-1]]}
    found = step_advantages(episodes({"q/a": 1, "q/b": -1}), steps(votes))
    assert set(found["advantage"]) == {0.0}


def test_an_index_that_only_failures_reach_is_like_any_other() -> None:
    votes = {"q/a": [[1]], "q/b": [[1], [1]], "q/c": [[1], [-1]]}
    found = values(step_advantages(episodes({"q/a": 1, "q/b": -1, "q/c": -1}), steps(votes)), "advantage")
    assert (found[("q/b", 1)], found[("q/c", 1)]) == (1.0, -1.0)


def test_over_the_task_all_steps_are_one_group() -> None:
    # Means 1, 1, -1, -1 over two indices: average 0, deviation 1.
    found = step_advantages(
        episodes({"q/a": 1, "q/b": -1}), steps({"q/a": [[1], [1]], "q/b": [[-1], [-1]]}), normalise="task"
    )
    assert found["advantage"].to_list() == [1.0, 1.0, -1.0, -1.0]


def test_by_place_the_same_sight_is_compared_and_nothing_is_blown_up() -> None:
    scored = steps({"q/a": [[1, 1, -1]], "q/b": [[1, 1, 1]], "q/c": [[-1]]}).with_columns(
        place=pl.Series(["door", "door", "wall"])
    )
    frame = step_advantages(episodes({"q/a": 1, "q/b": 1, "q/c": -1}), scored, normalise="place")
    # S is 1/3 and 1 at the door: 1/3 below and above their mean
    expected = {("q/a", 0): -1 / 3, ("q/b", 0): 1 / 3, ("q/c", 0): 0.0}
    assert values(frame, "advantage") == pytest.approx(expected)
