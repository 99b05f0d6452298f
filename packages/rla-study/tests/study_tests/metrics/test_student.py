"""Student's t over seeds, from the printed tables and by hand."""

from __future__ import annotations

from statistics import StatisticsError

import pytest
from rla_study.metrics.power import spread_of_seeds
from rla_study.metrics.student import difference_of_seeds, mean_of_seeds, paired_interval, student_quantile

PER_SEED = (2.8, 4.7, 0.2, 1.6, 1.0)  # mean 2.06; squares of the deviations sum to 12.312


@pytest.mark.parametrize(
    ("probability", "freedom", "value"),
    [(0.975, 1, 12.706), (0.975, 4, 2.776), (0.975, 7, 2.365), (0.8, 4, 0.941), (0.8, 7, 0.896), (0.975, 30, 2.042)],
)
def test_quantiles_are_those_of_the_printed_tables(probability: float, freedom: int, value: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(value, abs=5e-4)


def test_a_quantile_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no quantile"):
        student_quantile(0.975, 0)


def test_the_interval_is_students() -> None:
    spread = spread_of_seeds(PER_SEED)
    assert spread.seed == pytest.approx(3.078)
    found = paired_interval(2.06, spread.variance(seeds=5, games=1), seeds=5)
    assert (found.low, found.high) == (pytest.approx(2.06 - 2.178, abs=1e-3), pytest.approx(2.06 + 2.178, abs=1e-3))
    mean = mean_of_seeds(PER_SEED)
    assert (mean.estimate, mean.low, mean.high) == (
        pytest.approx(2.06),
        pytest.approx(found.low),
        pytest.approx(found.high),
    )


def test_a_difference_of_seeds_that_have_nothing_in_common_is_welchs() -> None:
    """10 and 30 (variance 200, over 2: 100) less 1, 2, 3 (variance 1, over 3: 1/3): f = 100.33^2 / 10000.06 = 1.007."""
    found = difference_of_seeds([10.0, 30.0], [1.0, 2.0, 3.0])
    half = 12.706 * (100 + 1 / 3) ** 0.5
    assert found.estimate == pytest.approx(18.0)
    assert (found.low, found.high) == (pytest.approx(18 - half, abs=0.01), pytest.approx(18 + half, abs=0.01))


def test_equal_spreads_have_the_degrees_of_both_sides() -> None:
    """Variances 200 over 2 on each side: f = 200^2 / (2 x 100^2) = 2."""
    found = difference_of_seeds([10.0, 30.0], [10.0, 30.0])
    assert found.high == pytest.approx(4.3027 * 200**0.5, abs=0.01)


def test_seeds_that_do_not_vary_leave_a_point_and_one_seed_leaves_nothing() -> None:
    point = difference_of_seeds([0.4, 0.4], [0.5, 0.5])
    assert (point.low, point.high) == (pytest.approx(-0.1), pytest.approx(-0.1))
    with pytest.raises(StatisticsError):
        mean_of_seeds([1.0])
