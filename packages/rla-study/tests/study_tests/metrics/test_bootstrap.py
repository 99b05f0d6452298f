"""Bootstrap over seeds and games, against samples whose spread is known."""

import numpy as np
import pytest
from rla_study.metrics import bootstrap

FIRST = {"a": [True, True], "b": [True, False]}
SECOND = {"a": [False, False], "b": [True, False]}


def test_rates_are_per_seed_and_game() -> None:
    assert bootstrap.rates([FIRST, SECOND]).tolist() == [[1.0, 0.5], [0.0, 0.5]]


def test_runs_of_different_games_are_refused() -> None:
    with pytest.raises(ValueError, match="different games"):
        bootstrap.rates([FIRST, {"a": [True]}])
    with pytest.raises(ValueError, match="none"):
        bootstrap.rates([])


def test_without_spread_the_interval_is_a_point() -> None:
    found = bootstrap.seed_mean(np.full((3, 5), 0.25))
    assert (found.estimate, found.low, found.high) == (0.25, 0.25, 0.25)


def test_with_one_seed_only_the_games_vary() -> None:
    """400 games, each won or lost, half of them won: the mean's standard error is 0.5 / sqrt(400) = 0.025."""
    found = bootstrap.seed_mean(np.array([[0.0, 1.0] * 200]))
    assert found.estimate == 0.5
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.025, rel=0.05)


def test_seeds_that_differ_widen_the_interval() -> None:
    """Two seeds at 0 and 1: a redrawn pair is all 0 or all 1 in a quarter of the draws each."""
    found = bootstrap.seed_mean(np.array([[0.0] * 50, [1.0] * 50]))
    assert (found.low, found.estimate, found.high) == (0.0, 0.5, 1.0)


def test_a_difference_is_paired_by_game() -> None:
    """Games of very different difficulty, each won 0.1 more often: only the pairing makes the gain certain."""
    before = np.linspace(0.0, 0.9, 40)[None]
    found = bootstrap.seed_difference(before + 0.1, before)
    assert found.estimate == pytest.approx(0.1)
    assert found.high - found.low < 1e-9
    with pytest.raises(ValueError, match="40 games against 3"):
        bootstrap.seed_difference(np.ones((1, 40)), np.ones((1, 3)))


def test_intervals_of_three_seeds_cover_the_truth_about_as_often_as_they_say() -> None:
    """Seeds that differ by 0.04 around a rate of 0.5, 100 games: of 200 experiments nine in ten or more are covered."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        sample = rng.binomial(3, np.clip(0.5 + 0.04 * rng.standard_normal((3, 1)), 0, 1), size=(3, 100)) / 3
        found = bootstrap.seed_mean(sample)
        covered += found.low <= 0.5 <= found.high
    assert 180 <= covered <= 200


def test_seeds_that_began_alike_are_compared_one_by_one() -> None:
    """Seeds that reach 0.2 and 0.8 differ by more than the 0.1 by which each of them gains."""
    before = np.array([[0.2, 0.2], [0.8, 0.8]])
    found = bootstrap.seed_by_seed_difference(before + 0.1, before)
    assert (found.estimate, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    assert bootstrap.seed_difference(before + 0.1, before).low < -0.2
    with pytest.raises(ValueError, match="seeds and games"):
        bootstrap.seed_by_seed_difference(before[:1], before)
