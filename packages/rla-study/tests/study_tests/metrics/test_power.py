"""Variance components and numbers of seeds, by hand."""

from math import sqrt

import numpy as np
import pytest
from rla_study.metrics.power import (
    DifferenceSpread,
    difference_spread,
    rate_noise,
    seeds_to_settle,
    spread_of_seeds,
)

NONE = np.zeros((2, 2))
PER_SEED = (2.8, 4.7, 0.2, 1.6, 1.0)  # mean 2.06; squares of the deviations sum to 12.312


def test_what_seeds_and_games_add_is_told_apart() -> None:
    """Seeds have the means 0.3 and 0.1, games too, and no cell departs from their sum: mean squares 0.04, 0.04, 0."""
    spread = difference_spread(np.array([[0.4, 0.2], [0.2, 0.0]]), NONE)
    assert (spread.seed, spread.game, spread.cell) == (pytest.approx(0.02), pytest.approx(0.02), pytest.approx(0.0))
    assert spread.variance(seeds=2, games=2) == pytest.approx(0.02)
    assert spread.variance(seeds=100, games=2) == pytest.approx(0.0102)  # more seeds leave what games add


def test_what_is_left_in_the_cells_is_the_evaluations_and_something_more() -> None:
    """Every cell departs by 0.1 from the sum of means: all three mean squares are 0.04, so only cells vary."""
    spread = difference_spread(np.array([[0.4, 0.0], [0.0, 0.0]]), np.full((2, 2), 0.01))
    assert (spread.seed, spread.game) == (pytest.approx(0.0), pytest.approx(0.0))
    assert (spread.cell, spread.evaluation) == (pytest.approx(0.03), pytest.approx(0.01))
    assert spread.variance(seeds=2, games=2) == pytest.approx(0.01)
    assert spread.variance(seeds=2, games=2, times=2) == pytest.approx(0.00875)
    assert spread.of_one_seed(games=2) == pytest.approx(0.02)


def test_fewer_than_two_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="two seeds and games"):
        difference_spread(np.zeros((1, 5)), np.zeros((1, 5)))
    with pytest.raises(ValueError, match="one seed"):
        spread_of_seeds([0.1])


def test_the_noise_of_a_rate_is_without_bias() -> None:
    """Two of four won: 1/4 over 3. One episode says nothing of it."""
    assert rate_noise([True, True, False, False]) == pytest.approx(1 / 12)
    assert rate_noise([True, True]) == rate_noise([True]) == 0.0


def test_the_seeds_that_settle_a_difference() -> None:
    """(2.447 + 0.906) 1.754 / sqrt(7) = 2.22 and (2.365 + 0.896) 1.754 / sqrt(8) = 2.02 around 2.06: eight."""
    spread = spread_of_seeds(PER_SEED)
    assert seeds_to_settle(2.06, spread, games=1) == seeds_to_settle(-2.06, spread, games=1) == 8
    assert seeds_to_settle(2.0, spread, games=1) == 9
    assert seeds_to_settle(100.0, spread, games=1) == 2
    assert seeds_to_settle(0.0, spread, games=1) is None


def test_games_set_an_end_to_what_seeds_can_tell() -> None:
    """(1.960 + 0.842) sqrt(0.04 / 4) = 0.2802."""
    spread = DifferenceSpread(seed=0.01, game=0.04)
    assert seeds_to_settle(0.28, spread, games=4) is None
    found = seeds_to_settle(0.3, spread, games=4)
    assert found is not None and found > 10
    assert (seeds_to_settle(0.3, spread, games=400) or 0) < found


def test_more_episodes_need_fewer_seeds() -> None:
    spread = DifferenceSpread(seed=0.0, evaluation=1.0)
    once, four = (seeds_to_settle(sqrt(0.1), spread, games=10, times=times) for times in (1, 4))
    assert once is not None and four is not None and four < once
