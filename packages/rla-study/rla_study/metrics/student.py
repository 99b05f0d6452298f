"""Intervals by Student's t over a few seeds, with one number of any size per seed.

    mean of n       mean +- t_(n - 1) s / sqrt(n)
    difference      a - b +- t_f sqrt(s_a^2 / n_a + s_b^2 / n_b), f rounded down from Welch's

    f = (u + v)^2 / (u^2 / (n_a - 1) + v^2 / (n_b - 1)),   u = s_a^2 / n_a, v = s_b^2 / n_b

Source: Welch, The generalization of Student's problem (Biometrika, 1947).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import atan, cos, inf, pi, sin, sqrt
from statistics import fmean, variance

from rla.metrics.intervals import Interval


def mean_of_seeds(values: Sequence[float]) -> Interval:
    """Raises `statistics.StatisticsError` with fewer than two seeds."""
    return paired_interval(fmean(values), variance(values) / len(values), seeds=len(values))


def difference_of_seeds(after: Sequence[float], before: Sequence[float]) -> Interval:
    """Mean of `after` minus mean of `before` for independent seeds.

    Raises `statistics.StatisticsError` with fewer than two seeds on either side.
    """
    one, other = (variance(values) / len(values) for values in (after, before))
    both = one + other
    freedom = 1
    if both:
        freedom = int(both**2 / (one**2 / (len(after) - 1) + other**2 / (len(before) - 1)) + 1e-9)
    return paired_interval(fmean(after) - fmean(before), both, seeds=freedom + 1)


def paired_interval(estimate: float, variance: float, *, seeds: int, confidence: float = 0.95) -> Interval:
    """The interval by Student's t with `seeds - 1` degrees of freedom."""
    half = student_quantile(0.5 + confidence / 2, seeds - 1) * sqrt(variance)
    return Interval(estimate, estimate - half, estimate + half)


def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t at a `probability` above one half, by bisection: 2.776 at 0.975 with 4 degrees of
    freedom.

    Raises `ValueError` outside (1/2, 1) or without a degree of freedom.
    """
    if not 0.5 < probability < 1.0 or freedom < 1:
        raise ValueError(f"no quantile at {probability} of {freedom} degrees of freedom")
    low, high = 0.0, 1.0
    while _student_cdf(high, freedom) < probability:
        low, high = high, high * 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _student_cdf(value: float, freedom: int) -> float:
    """P(T <= value), value >= 0, for a whole number of degrees of freedom: a finite sum.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = atan(value / sqrt(freedom)) if value < inf else pi / 2
    square, odd = cos(angle) ** 2, freedom % 2 == 1
    term = total = 0.0 if freedom == 1 else cos(angle) if odd else 1.0
    for number in range(3 if odd else 2, freedom - 1, 2):
        term *= square * (number - 1) / number
        total += term
    inside = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return 0.5 + inside / 2
