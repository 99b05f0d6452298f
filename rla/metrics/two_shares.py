"""Two shares as one figure, with tasks as clusters: balanced accuracy, mu, and how either changed.

    f = w * (p_1 + p_2),   p_k = sum_t Y_kt / sum_t n_kt        balanced accuracy: w = 1/2;  mu = p+ + p-: w = 1
    u_t = w * sum_k (Y_kt - p_k n_kt) / N_k,                    Var(f) = G/(G-1) * sum_t u_t^2
    change = f_after - f_before on the same tasks,              u_t of `after` minus that of `before`

Votes of one task resemble each other, and a task has steps of both kinds, so both shares vary together. Where no task
differs from the others, or there are fewer than two, nothing is known of the spread and there is no interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from rla.metrics.intervals import Interval, quantile

Counts = tuple[int, int]  # successes, trials
NOTHING: tuple[Counts, Counts] = ((0, 0), (0, 0))
Shares = Mapping[str, tuple[Counts, Counts]]  # of each task, for both shares


def two_shares(tasks: Shares, *, weight: float, confidence: float = 0.95) -> Interval | None:
    """The figure with its interval; None where a share has no trials, or nothing is known of the spread."""
    figure = joined_shares(tasks, weight)
    if figure is None:
        return None
    return _interval(figure, [_influence(tasks, name, weight) for name in sorted(tasks)], 0.0, 2 * weight, confidence)


def change_of_two_shares(before: Shares, after: Shares, *, weight: float, confidence: float = 0.95) -> Interval | None:
    """What was gained from `before` to `after`; a task may be missing where nothing of it counts."""
    first, second = joined_shares(before, weight), joined_shares(after, weight)
    if first is None or second is None:
        return None
    influence = [
        _influence(after, name, weight) - _influence(before, name, weight)
        for name in sorted(before.keys() | after.keys())
    ]
    return _interval(second - first, influence, -2 * weight, 2 * weight, confidence)


def _totals(tasks: Shares) -> list[Counts]:
    return [(sum(pair[k][0] for pair in tasks.values()), sum(pair[k][1] for pair in tasks.values())) for k in (0, 1)]


def joined_shares(tasks: Shares, weight: float) -> float | None:
    """The figure alone; None where a share has no trials."""
    totals = _totals(tasks)
    if not all(trials for _, trials in totals):
        return None
    return weight * sum(found / trials for found, trials in totals)


def _influence(tasks: Shares, name: str, weight: float) -> float:
    pairs = zip(tasks.get(name, NOTHING), _totals(tasks), strict=True)
    return weight * sum((found - all_found / trials * count) / trials for (found, count), (all_found, trials) in pairs)


def _interval(figure: float, influence: list[float], least: float, most: float, confidence: float) -> Interval | None:
    squares = sum(value * value for value in influence)
    if len(influence) < 2 or squares < 1e-18:
        return None
    half = quantile(confidence) * sqrt(len(influence) / (len(influence) - 1) * squares)
    return Interval(figure, max(least, figure - half), min(most, figure + half))
