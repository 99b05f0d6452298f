"""Intervals for success rates.

    Wilson      centre (p + z^2/2n) / (1 + z^2/n),  half-width z/(1 + z^2/n) * sqrt(p(1-p)/n + z^2/4n^2)
    clustered   p = sum_t Y_t / n with tasks as clusters:  u_t = (Y_t - p n_t)/n,  Var(p) = G/(G-1) * sum_t u_t^2
                Wilson with p (1-p) / Var(p) trials: as many independent ones as would vary that much
    Newcombe    d = p2 - p1,  [d - sqrt((p2-l2)^2 + (u1-p1)^2),  d + sqrt((u2-p2)^2 + (p1-l1)^2)]  with Wilson's l, u
    shares      f = w * sum_k p_k,  p_k = sum_t Y_kt / N_k,  N_k = sum_t n_kt, with tasks as clusters: a success rate
                with one share and w = 1, mu with two, balanced accuracy with two and w = 1/2
                u_t = w * sum_k (Y_kt - p_k n_kt) / N_k,  Var(f) = G/(G-1) * sum_t u_t^2
    change      of f: the same with u_t of `after` minus u_t of `before`, which takes the pairing of tasks into account

Rollouts of one task resemble each other, so they are not independent trials: all but Wilson and Newcombe count a task
as one draw. Tasks in only one of two samples are fine. Near 0 and 1, p -+ 1.96 sqrt(Var(p)) is too narrow for few
tasks, hence Wilson's form of `clustered`. Source of that form: Dean and Pagano, Journal of Survey Statistics and
Methodology 3 (2015).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from statistics import NormalDist

Counts = tuple[int, int]  # successes, trials
Shares = Mapping[str, tuple[Counts, ...]]  # task -> the counts of each of its shares


@dataclass(frozen=True, slots=True)
class Interval:
    estimate: float
    low: float
    high: float


def quantile(confidence: float) -> float:
    """The two-sided normal quantile: 1.96 for 0.95."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def wilson(successes: int, total: int, *, confidence: float = 0.95) -> Interval | None:
    """Wilson's score interval of a proportion; None without trials.

    Raises `ValueError` unless 0 <= successes <= total. Source: Wilson, JASA 22 (1927).
    """
    if not 0 <= successes <= total:
        raise ValueError(f"{successes} successes of {total} trials")
    return _score(successes / total, total, confidence=confidence) if total else None


def _score(rate: float, total: float, *, confidence: float) -> Interval:
    z = quantile(confidence)
    scale = 1 + z * z / total
    centre = (rate + z * z / (2 * total)) / scale
    half = z / scale * sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    low = 0.0 if rate == 0.0 else centre - half
    high = 1.0 if rate == 1.0 else centre + half
    return Interval(rate, low, high)


def clustered(
    sums: Sequence[tuple[float, int]], *, most: float | None = None, confidence: float = 0.95
) -> Interval | None:
    """The mean of values in [0, 1], given the sum and the count of each cluster; None without values.

    `most`: as many independent trials they can be worth; None: their number, which holds for successes. Fewer than two
    clusters, or clusters that do not vary, carry no spread to learn from: a cluster then counts as one trial.
    """
    sums = [(found, count) for found, count in sums if count]
    if not sums:
        return None
    total = sum(count for _, count in sums)
    mean = min(fsum(found for found, _ in sums) / total, 1.0)
    squares = sum(((found - mean * count) / total) ** 2 for found, count in sums)
    if len(sums) < 2 or squares < 1e-18:
        return _score(mean, len(sums), confidence=confidence)
    variance = len(sums) / (len(sums) - 1) * squares
    return _score(mean, min(mean * (1 - mean) / variance, total if most is None else most), confidence=confidence)


def success_interval(outcomes: Iterable[tuple[str, bool]]) -> Interval | None:
    """The success rate of episodes, each (task id, whether it was won), with tasks as clusters; None without any."""
    counts: dict[str, tuple[int, int]] = {}
    for task, won in outcomes:
        before = counts.get(task, (0, 0))
        counts[task] = (before[0] + won, before[1] + 1)
    return clustered(list(counts.values()))


def newcombe(first: tuple[int, int], second: tuple[int, int], *, confidence: float = 0.95) -> Interval | None:
    """The second proportion minus the first of two independent samples, each (successes, trials).

    None if a sample is empty; raises `ValueError` as `wilson` does. Hybrid score interval, without continuity
    correction. Source: Newcombe, Statistics in Medicine 17 (1998), method 10.
    """
    one, two = wilson(*first, confidence=confidence), wilson(*second, confidence=confidence)
    if one is None or two is None:
        return None
    estimate = two.estimate - one.estimate
    down = sqrt((two.estimate - two.low) ** 2 + (one.high - one.estimate) ** 2)
    up = sqrt((two.high - two.estimate) ** 2 + (one.estimate - one.low) ** 2)
    return Interval(estimate, max(-1.0, estimate - down), min(1.0, estimate + up))


def difference(before: Mapping[str, Sequence[bool]], after: Mapping[str, Sequence[bool]]) -> Interval | None:
    """The gain in success from `before` to `after`: mappings from task to whether its rollouts succeeded.

    None if either sample is empty. With fewer than two tasks, or if no task varies (all rates 0 or 1), the clusters
    carry no spread to learn from and Newcombe's interval for independent trials is given instead.
    """
    one, two = ({task: ((sum(won), len(won)),) for task, won in sample.items()} for sample in (before, after))
    if (found := change_of_shares(one, two, weight=1.0)) is not None:
        return found
    (first,), (second,) = (_totals(sample) or [(0, 0)] for sample in (one, two))
    return newcombe(first, second)


def shares_interval(tasks: Shares, *, weight: float) -> Interval | None:
    """`joined_shares` with its interval; None if a share has no trials, or nothing is known of the spread."""
    figure = joined_shares(tasks, weight)
    if figure is None:
        return None
    return _around(figure, list(_influence(tasks, weight).values()), 0.0, weight * len(_totals(tasks)))


def change_of_shares(before: Shares, after: Shares, *, weight: float) -> Interval | None:
    """The gain from `before` to `after`; a task without trials may be missing. None as for `shares_interval`."""
    first, second = joined_shares(before, weight), joined_shares(after, weight)
    if first is None or second is None:
        return None
    one, two = _influence(before, weight), _influence(after, weight)
    influence = [two.get(task, 0.0) - one.get(task, 0.0) for task in sorted(one.keys() | two.keys())]
    most = weight * len(_totals(after))
    return _around(second - first, influence, -most, most)


def joined_shares(tasks: Shares, weight: float) -> float | None:
    """weight * sum_k p_k; None if a share has no trials."""
    totals = _totals(tasks)
    if not totals or not all(trials for _, trials in totals):
        return None
    return weight * sum(found / trials for found, trials in totals)


def _totals(tasks: Shares) -> list[Counts]:
    """The counts of each share over all tasks; empty without tasks."""
    shares = zip(*tasks.values(), strict=True)
    return [(sum(found for found, _ in share), sum(trials for _, trials in share)) for share in shares]


def _influence(tasks: Shares, weight: float) -> dict[str, float]:
    """u_t of each task, in order."""
    totals = _totals(tasks)
    return {
        task: weight
        * sum(
            (found - all_found / trials * count) / trials
            for (found, count), (all_found, trials) in zip(tasks[task], totals, strict=True)
        )
        for task in sorted(tasks)
    }


def _around(figure: float, influence: Sequence[float], least: float, most: float) -> Interval | None:
    """The interval of a figure from the influence of each task; None if they do not vary."""
    squares = sum(value * value for value in influence)
    if len(influence) < 2 or squares < 1e-18:
        return None
    half = quantile(0.95) * sqrt(len(influence) / (len(influence) - 1) * squares)
    return Interval(figure, max(least, figure - half), min(most, figure + half))
