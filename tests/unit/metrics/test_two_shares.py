"""Balanced accuracy and mu with tasks as clusters, on counts that can be worked by hand."""

from __future__ import annotations

import pytest

from rla.metrics.intervals import Shares, change_of_shares, joined_shares, shares_interval

Z = 1.959964
# p_1 = 3/4, p_2 = 1/2: balanced 5/8. u of p: 1/2 ((2 - 9/4)/4 + (1 - 1/2)/4) = 1/32, of q: the same below 0.
# Var = 2/1 * 2/1024 = 1/256.
MIXED: Shares = {"p": ((2, 3), (1, 1)), "q": ((1, 1), (1, 3))}
RIGHT: Shares = {"p": ((3, 3), (1, 1)), "q": ((1, 1), (3, 3))}


def test_the_mean_of_two_shares_has_the_tasks_as_its_units() -> None:
    found = shares_interval(MIXED, weight=0.5)
    assert found is not None
    assert [found.estimate, found.low, found.high] == pytest.approx([5 / 8, 5 / 8 - Z / 16, 5 / 8 + Z / 16])


def test_their_sum_is_twice_as_much() -> None:
    found = shares_interval(MIXED, weight=1.0)
    assert found is not None
    assert [found.estimate, found.low, found.high] == pytest.approx([5 / 4, 5 / 4 - Z / 8, 5 / 4 + Z / 8])


def test_a_change_pairs_the_tasks() -> None:
    # All of RIGHT are right, so its u are 0: the change has the spread of MIXED.
    found = change_of_shares(MIXED, RIGHT, weight=0.5)
    assert found is not None
    assert [found.estimate, found.low, found.high] == pytest.approx([3 / 8, 3 / 8 - Z / 16, 3 / 8 + Z / 16])
    assert change_of_shares(MIXED, MIXED, weight=0.5) is None  # no task changed: nothing is known of the spread


def test_a_task_of_which_nothing_counts_may_be_missing() -> None:
    # after: p alone. p_1 = 2/3, p_2 = 1: 5/6, its u are 0.
    found = change_of_shares(MIXED, {"p": ((2, 3), (1, 1))}, weight=0.5)
    assert found is not None
    assert [found.estimate, found.high - found.estimate] == pytest.approx([5 / 6 - 5 / 8, Z / 16])


def test_bounds_stay_possible() -> None:
    wide: Shares = {"p": ((1, 1), (0, 1)), "q": ((0, 1), (0, 1))}
    found = shares_interval(wide, weight=0.5)
    assert found is not None and found.low == 0.0


def test_without_trials_of_both_kinds_nothing_is_known() -> None:
    assert joined_shares({"p": ((1, 2), (0, 0))}, 0.5) is None
    assert shares_interval({}, weight=1.0) is None


def test_a_judge_that_always_says_the_same_has_a_figure_and_no_spread() -> None:
    same: Shares = {"p": ((0, 3), (1, 1)), "q": ((0, 1), (3, 3))}
    assert joined_shares(same, 0.5) == 0.5
    assert shares_interval(same, weight=0.5) is None
