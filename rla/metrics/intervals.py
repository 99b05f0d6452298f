"""Intervals for success rates.

    Wilson      centre (p + z^2/2n) / (1 + z^2/n),  half-width z/(1 + z^2/n) * sqrt(p(1-p)/n + z^2/4n^2)
    clustered   p = sum_t Y_t / n with tasks as clusters:  u_t = (Y_t - p n_t)/n,  Var(p) = G/(G-1) * sum_t u_t^2
    Newcombe    d = p2 - p1,  [d - sqrt((p2-l2)^2 + (u1-p1)^2),  d + sqrt((u2-p2)^2 + (p1-l1)^2)]  with Wilson's l, u
    difference  d = p_after - p_before, with tasks as clusters:
                u_t = (Y_t - p n_t)/n of `after` minus the same of `before`,  Var(d) = G/(G-1) * sum_t u_t^2

Rollouts of one task resemble each other, so they are not independent trials: the difference counts a task
as one draw. A task in both samples contributes one u_t, which takes the pairing into account; tasks in only
one sample are fine too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the bounds of its confidence interval."""

    estimate: float
    low: float
    high: float


def quantile(confidence: float) -> float:
    """The two-sided normal quantile: 1.96 for 0.95. Raises `ValueError` outside (0, 1)."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def wilson(successes: int, total: int, *, confidence: float = 0.95) -> Interval | None:
    """Wilson's score interval of a proportion; nothing where there are no trials.

    Raises `ValueError` unless 0 <= successes <= total. Source: Wilson, JASA 22 (1927).
    """
    if not 0 <= successes <= total:
        raise ValueError(f"{successes} successes of {total} trials")
    return _score(successes / total, total, confidence=confidence) if total else None


def _score(rate: float, total: int, *, confidence: float) -> Interval:
    z = quantile(confidence)
    scale = 1 + z * z / total
    centre = (rate + z * z / (2 * total)) / scale
    half = z / scale * sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    low = 0.0 if rate == 0.0 else centre - half
    high = 1.0 if rate == 1.0 else centre + half
    return Interval(rate, low, high)


def clustered(counts: Sequence[tuple[int, int]], *, confidence: float = 0.95) -> Interval | None:
    """The share of successes, given (successes, trials) of each cluster; nothing where there are no trials.

    With fewer than two clusters, or where none varies, they carry no spread to learn from and Wilson's interval for
    independent trials is given instead.
    """
    total = sum(trials for _, trials in counts)
    successes = sum(won for won, _ in counts)
    if total == 0:
        return None
    return _by_cluster(counts, confidence=confidence) or wilson(successes, total, confidence=confidence)


def clustered_mean(sample: Mapping[str, Sequence[float]], *, confidence: float = 0.95) -> Interval | None:
    """The same for values in [0, 1]: a mapping from task to its values; nothing where there are none.

    With fewer than two tasks, or where none varies, Wilson's interval is given with one trial per task: such values
    (chances, several to a task) are no independent trials. Raises `ValueError` for other values.
    """
    filled = [values for values in sample.values() if values]
    if not all(0.0 <= value <= 1.0 for values in filled for value in values):
        raise ValueError("values must lie between 0 and 1")
    if not filled:
        return None
    sums = [(fsum(values), len(values)) for values in filled]
    mean = fsum(found for found, _ in sums) / sum(count for _, count in sums)
    return _by_cluster(sums, confidence=confidence) or _score(min(mean, 1.0), len(filled), confidence=confidence)


def _by_cluster(sums: Sequence[tuple[float, int]], *, confidence: float) -> Interval | None:
    """From (sum, count) of each cluster; nothing where clusters carry no spread."""
    total = sum(count for _, count in sums)
    mean = sum(found for found, _ in sums) / total
    clusters = [(found, count) for found, count in sums if count]
    squares = sum(((found - mean * count) / total) ** 2 for found, count in clusters)
    if len(clusters) < 2 or squares < 1e-18:
        return None
    half = quantile(confidence) * sqrt(len(clusters) / (len(clusters) - 1) * squares)
    return Interval(mean, max(0.0, mean - half), min(1.0, mean + half))


def newcombe(first: tuple[int, int], second: tuple[int, int], *, confidence: float = 0.95) -> Interval | None:
    """The second proportion minus the first of two independent samples, each (successes, trials).

    Nothing where a sample is empty; raises `ValueError` where `wilson` does. Hybrid score interval, without continuity
    correction. Source: Newcombe, Statistics in Medicine 17 (1998), method 10.
    """
    one, two = wilson(*first, confidence=confidence), wilson(*second, confidence=confidence)
    if one is None or two is None:
        return None
    estimate = two.estimate - one.estimate
    down = sqrt((two.estimate - two.low) ** 2 + (one.high - one.estimate) ** 2)
    up = sqrt((two.high - two.estimate) ** 2 + (one.estimate - one.low) ** 2)
    return Interval(estimate, max(-1.0, estimate - down), min(1.0, estimate + up))


def difference(
    before: Mapping[str, Sequence[bool]], after: Mapping[str, Sequence[bool]], *, confidence: float = 0.95
) -> Interval | None:
    """Success of `after` minus that of `before`: mappings from task to whether its rollouts succeeded.

    Nothing where either sample is empty. With fewer than two tasks, or where no task varies (all rates 0 or
    1), the clusters carry no spread to learn from and Newcombe's interval for independent trials is given
    instead.
    """
    rollouts_before, rollouts_after = _count(before), _count(after)
    if not rollouts_before or not rollouts_after:
        return None
    rate_before = _successes(before) / rollouts_before
    rate_after = _successes(after) / rollouts_after
    tasks = before.keys() | after.keys()
    influence = [
        _influence(after.get(task, ()), rate_after, rollouts_after)
        - _influence(before.get(task, ()), rate_before, rollouts_before)
        for task in sorted(tasks)
    ]
    squares = sum(value * value for value in influence)
    if len(tasks) < 2 or squares < 1e-18:
        return newcombe(
            (_successes(before), rollouts_before), (_successes(after), rollouts_after), confidence=confidence
        )
    half = quantile(confidence) * sqrt(len(tasks) / (len(tasks) - 1) * squares)
    estimate = rate_after - rate_before
    return Interval(estimate, max(-1.0, estimate - half), min(1.0, estimate + half))


def _influence(rollouts: Sequence[bool], rate: float, total: int) -> float:
    return (sum(rollouts) - rate * len(rollouts)) / total


def _count(sample: Mapping[str, Sequence[bool]]) -> int:
    return sum(len(rollouts) for rollouts in sample.values())


def _successes(sample: Mapping[str, Sequence[bool]]) -> int:
    return sum(sum(rollouts) for rollouts in sample.values())
