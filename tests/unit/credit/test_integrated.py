"""R_i = O + lambda * mean_j S_ij, standardised over the task's trajectories at the same step index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import polars as pl
import pytest

from rla.credit.estimators import POLICY_REWARDS, integrated_advantages
from tests.unit.credit.builders import Votes, episodes, steps, values


def advantages(outcomes: dict[str, int], votes: Mapping[str, Sequence[Votes]], weight: float = 1.0) -> pl.DataFrame:
    return integrated_advantages(episodes(outcomes), steps(votes), step_weight=weight)


def test_reward_and_advantage_of_four_trajectories() -> None:
    # R = 1 + 1 = 2, 1 + 1/3 = 4/3, -1 - 1/3 = -4/3, -1 - 1 = -2. Mean 0, variance (4 + 16/9) / 2 = 26/9.
    outcomes = {"q/a": 1, "q/b": 1, "q/c": -1, "q/d": -1}
    votes = {"q/a": [[1, 1, 1]], "q/b": [[1, 1, -1]], "q/c": [[1, -1, -1]], "q/d": [[-1, -1, -1]]}
    frame = advantages(outcomes, votes)
    expected = {"q/a": 2, "q/b": 4 / 3, "q/c": -4 / 3, "q/d": -2}
    assert values(frame, "reward") == pytest.approx({(name, 0): r for name, r in expected.items()})
    spread = sqrt(26 / 9)
    assert values(frame, "advantage") == pytest.approx({(name, 0): r / spread for name, r in expected.items()})
    assert frame.schema == POLICY_REWARDS


def test_step_weight_scales_the_judgements_only() -> None:
    # lambda = 0.5: R = 1 + 0.5 * 1/3
    frame = advantages({"q/a": 1}, {"q/a": [[1, 1, -1]]}, weight=0.5)
    assert values(frame, "reward")[("q/a", 0)] == pytest.approx(1 + 0.5 / 3)


def test_an_invalid_judgement_leaves_the_mean_of_the_others_and_none_at_all_leaves_the_outcome() -> None:
    # q/a: votes +1 and an unparsable one: mean +1, not +1/2. q/b: nothing parsed: R = O.
    frame = advantages({"q/a": 1, "q/b": -1}, {"q/a": [[1, None]], "q/b": [[None, None]]})
    assert values(frame, "reward") == {("q/a", 0): 2.0, ("q/b", 0): -1.0}
    assert values(frame, "mean_score") == {("q/a", 0): 1.0, ("q/b", 0): None}


def test_a_group_of_one_has_advantage_zero() -> None:
    """Step 1 exists in q/a only, and r/a is alone in its task: there is nothing to compare with."""
    outcomes = {"q/a": 1, "q/b": -1, "r/a": 1}
    frame = advantages(outcomes, {"q/a": [[1], [1]], "q/b": [[1]], "r/a": [[1]]})
    # step 0 of q: R = 2 and 0, mean 1, deviation 1
    assert values(frame, "advantage") == {("q/a", 0): 1.0, ("q/a", 1): 0.0, ("q/b", 0): -1.0, ("r/a", 0): 0.0}
    assert values(frame, "reward")[("q/a", 1)] == 2.0


def test_rewards_that_differ_by_rounding_only_have_advantage_zero() -> None:
    scored = steps({"q/a": [[1]], "q/b": [[1]]}).with_columns(mean_score=pl.Series([1 / 3, 1 / 3 + 4e-16]))
    frame = integrated_advantages(episodes({"q/a": 1, "q/b": 1}), scored, step_weight=1.0)
    assert frame["reward"].n_unique() == 2
    assert values(frame, "advantage") == {("q/a", 0): 0.0, ("q/b", 0): 0.0}


def test_an_index_that_only_failures_reach_compares_them_by_their_judgements() -> None:
    # Step 1: q/b has R = -1 + 1 = 0, q/c has R = -1 - 1 = -2; mean -1, deviation 1
    outcomes = {"q/a": 1, "q/b": -1, "q/c": -1}
    frame = advantages(outcomes, {"q/a": [[1]], "q/b": [[1], [1]], "q/c": [[1], [-1]]})
    found = values(frame, "advantage")
    assert (found[("q/b", 1)], found[("q/c", 1)]) == (1.0, -1.0)


def test_tasks_do_not_mix() -> None:
    """Two tasks of the same outcomes give the same advantages as one alone."""
    votes = {"q/a": [[1]], "q/b": [[-1]]}
    alone = values(advantages({"q/a": 1, "q/b": -1}, votes), "advantage")
    others = {"r/a": [[-1]], "r/b": [[-1]]}
    both = values(advantages({"q/a": 1, "q/b": -1, "r/a": -1, "r/b": 1}, votes | others), "advantage")
    assert {key: value for key, value in both.items() if key in alone} == alone


def test_rows_come_in_key_order_and_only_for_the_episodes_given() -> None:
    frame = advantages({"q/b": 1, "q/a": -1}, {"q/b": [[1], [1]], "gone/a": [[1]], "q/a": [[1]]})
    assert list(values(frame, "reward")) == [("q/a", 0), ("q/b", 0), ("q/b", 1)]


def test_no_episodes_give_an_empty_frame_of_the_same_columns() -> None:
    frame = advantages({}, {})
    assert frame.height == 0
    assert frame.schema == POLICY_REWARDS


def test_standardised_over_the_task_the_judgements_keep_their_weight() -> None:
    """a: O = +1, one step, S = +1: R = 1.5. b: O = -1, S = +1, -1: R = -0.5, -1.5.

    Mean -1/6, variance (1.5^2 + 0.5^2 + 1.5^2) / 3 - 1/36 = 4.75/3 - 1/36 = 14/9, std 1.24722.
    """
    frame = integrated_advantages(
        episodes({"q/a": 1, "q/b": -1}), steps({"q/a": [[1]], "q/b": [[1], [-1]]}), step_weight=0.5, normalise="task"
    )
    expected = [(1.5 + 1 / 6) / 1.247219, (-0.5 + 1 / 6) / 1.247219, (-1.5 + 1 / 6) / 1.247219]
    assert frame["advantage"].to_list() == pytest.approx(expected, abs=1e-5)


def test_by_place_compares_what_was_done_where_the_same_was_seen() -> None:
    """The wall and the door of task q: q/a and q/b meet at the door, q/a alone sees the wall."""
    scored = steps({"q/a": [[1], [1]], "q/b": [[-1]]}).with_columns(place=pl.Series(["door", "wall", "door"]))
    frame = integrated_advantages(episodes({"q/a": 1, "q/b": -1}), scored, step_weight=0.5, normalise="place")
    # A_O = 1 and -1. At the door S is 1 and -1 with mean 0; at the wall there is nothing to compare with.
    assert values(frame, "advantage") == {("q/a", 0): 1.5, ("q/a", 1): 1.0, ("q/b", 0): -1.5}
    assert values(frame, "reward") == {("q/a", 0): 1.5, ("q/a", 1): 1.5, ("q/b", 0): -1.5}


def test_by_place_tasks_are_apart_and_a_step_without_votes_is_left_to_the_outcome() -> None:
    scored = steps({"q/a": [[1]], "q/b": [[None]], "r/a": [[-1]]}).with_columns(place=pl.lit("door"))
    frame = integrated_advantages(episodes({"q/a": 1, "q/b": -1, "r/a": 1}), scored, step_weight=1.0, normalise="place")
    assert values(frame, "advantage") == {("q/a", 0): 1.0, ("q/b", 0): -1.0, ("r/a", 0): 0.0}
