"""Intervals against published and hand-worked values."""

from __future__ import annotations

from math import sqrt

import pytest

from rla.metrics.intervals import (
    Interval,
    clustered,
    difference,
    newcombe,
    success_interval,
    wilson,
)


def bounds_of(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return interval.low, interval.high


def test_wilson_equals_the_textbook_value() -> None:
    # 8 of 10: (0.8 + 0.19207) / 1.38415 -+ 1.96/1.38415 * sqrt(0.016 + 0.009604) = 0.71674 -+ 0.22658
    interval = wilson(8, 10)
    assert interval is not None
    assert interval.estimate == 0.8
    assert (interval.low, interval.high) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)


def test_wilson_at_the_edges_stays_inside_and_is_not_a_point() -> None:
    none, every = wilson(0, 20), wilson(20, 20)
    assert none is not None and every is not None
    # 0 of n: high = z^2 / (n + z^2) = 3.841459 / 23.841459
    assert (none.low, none.high) == pytest.approx((0.0, 0.1611252), abs=1e-6)
    assert (every.low, every.high) == pytest.approx((1 - 0.1611252, 1.0), abs=1e-6)


def test_wilson_of_no_trials_is_nothing_and_impossible_counts_are_refused() -> None:
    assert wilson(0, 0) is None
    with pytest.raises(ValueError, match="3 successes of 2"):
        wilson(3, 2)


def test_clustered_takes_a_cluster_as_one_draw() -> None:
    # 3 of 4 and 1 of 4: p = 1/2, u = (1/8, -1/8), Var = 2 * 2/64 = 1/16: worth (1/4) / (1/16) = 4 independent trials.
    assert clustered([(3, 4), (1, 4), (0, 0)]) == wilson(2, 4)
    assert clustered([(30, 40), (10, 40)]) == wilson(2, 4)  # more votes of the same two tasks are no new evidence


def test_clustered_trials_are_worth_at_most_as_many_independent_ones() -> None:
    # 4, 4 and 5 of 8 differ less than coins do: 24 trials, not the 133 that would vary as little
    found = clustered([(4, 8), (4, 8), (5, 8)])
    assert found is not None
    assert (found.low, found.high) == pytest.approx(bounds_of(wilson(13, 24)))


def test_clustered_without_spread_or_with_one_cluster_counts_clusters() -> None:
    # Two tasks that were always won say nothing about a third, however often each was played.
    assert clustered([(40, 40), (60, 60)]) == wilson(2, 2)
    assert clustered([(0, 8)]) == wilson(0, 1)
    assert clustered([]) is None and clustered([(0, 0)]) is None


def test_success_counts_the_episodes_of_a_task_together() -> None:
    outcomes = [("a", True), ("b", False), ("a", True), ("b", True), ("a", True), ("b", False), ("b", False)]
    assert success_interval(iter([*outcomes, ("a", False)])) == clustered([(3, 4), (1, 4)])
    assert success_interval([]) is None


def test_newcombe_equals_the_published_examples() -> None:
    # Newcombe 1998, table II, method 10: 56/70 - 48/80 and 10/10 - 0/10
    first, second = newcombe((48, 80), (56, 70)), newcombe((0, 10), (10, 10))
    assert first is not None and second is not None
    assert (first.low, first.estimate, first.high) == pytest.approx((0.0524, 0.2, 0.3339), abs=5e-5)
    assert (second.low, second.high) == pytest.approx((0.6075, 1.0), abs=5e-5)


def test_newcombe_of_eight_rollouts_each() -> None:
    # z = 1.644854 (90%). Wilson 8/8: [8 / (8 + z^2), 1] = [0.747279, 1]; 4/8: 0.5 -+ 0.251366.
    # 0.5 - 1: up sqrt(0.251366^2 + 0.252721^2) = 0.356444, down sqrt(0.251366^2 + 0) = 0.251366
    interval = newcombe((8, 8), (4, 8), confidence=0.9)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((-0.751366, -0.143556), abs=2e-5)
    assert newcombe((0, 0), (4, 8)) is None


def test_difference_counts_a_task_as_one_draw() -> None:
    # Per task (2 rollouts each) 0 -> 1, 0 -> 0.5, 0.5 -> 0.5, 0.5 -> 1; rates 2/8 -> 6/8, d = 0.5.
    # u_t = (d_t - mean d) / 4 with d_t = 1, .5, 0, .5: .125, 0, -.125, 0; squares sum to 1/32.
    # Var = 4/3 * 1/32 = 1/24, half-width 1.959964 * sqrt(1/24).
    before = {"a": [False, False], "b": [False, False], "c": [True, False], "d": [True, False]}
    after = {"a": [True, True], "b": [True, False], "c": [True, False], "d": [True, True]}
    interval = difference(before, after)
    assert interval is not None
    assert interval.estimate == pytest.approx(0.5)
    assert interval.high - interval.estimate == pytest.approx(1.959964 * sqrt(1 / 24), abs=1e-6)
    assert interval.low == pytest.approx(0.5 - 1.959964 * sqrt(1 / 24), abs=1e-6)


def test_difference_of_correlated_rollouts_is_wider_than_of_independent_tasks() -> None:
    """Repeating each task's one rollout eight times is no new evidence: the interval does not shrink."""
    before = {str(n): [n % 4 == 0] for n in range(40)}
    after = {str(n): [n % 2 == 0] for n in range(40)}
    once = difference(before, after)
    often = difference({t: r * 8 for t, r in before.items()}, {t: r * 8 for t, r in after.items()})
    assert once is not None and often is not None
    assert (often.low, often.high) == pytest.approx((once.low, once.high))


def test_difference_of_disjoint_tasks_adds_the_two_variances() -> None:
    # before {0, 1} and after {1, 1, 0}: u = (-.5/2, .5/2), (1/3/3, 1/3/3, -2/3/3); G = 5
    interval = difference(
        {"a": [False], "b": [True]},
        {"c": [True], "d": [True], "e": [False]},
    )
    assert interval is not None
    variance = 5 / 4 * (2 * 0.25**2 + (1 + 1 + 4) / 81)
    assert interval.estimate == pytest.approx(2 / 3 - 1 / 2)
    assert interval.high == pytest.approx(min(1.0, 1 / 6 + 1.959964 * sqrt(variance)), abs=1e-6)


def test_difference_without_spread_falls_back_on_independent_trials() -> None:
    """Nothing won before, nothing after: the difference is 0 but not known to be exactly 0."""
    lost = {str(n): [False] for n in range(10)}
    interval = difference(lost, lost)
    assert interval is not None
    # Newcombe: both ends are Wilson's upper bound 3.841459 / 13.841459
    assert (interval.low, interval.estimate, interval.high) == pytest.approx((-0.2775328, 0.0, 0.2775328), abs=1e-6)


def test_difference_with_an_empty_side_is_nothing() -> None:
    assert difference({}, {"a": [True]}) is None
    assert difference({"a": [True]}, {"a": []}) is None
