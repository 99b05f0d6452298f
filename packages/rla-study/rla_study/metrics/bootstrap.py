"""Bootstrap intervals for success rates of several seeds on the same games.

    draw seeds with replacement, draw games with replacement (the same games for all seeds), average the rates
    interval: the 2.5% and 97.5% quantiles of the averages

Both are redrawn, because another run would have had another seed and might have been asked other games. If the games
are the same before and after, or in both arms, the difference of each game is drawn as one value (paired). The means of
n redrawn seeds have (n - 1) / n of the right variance, so their deviations are widened by sqrt(n / (n - 1)). With two
or three seeds the quantiles are still too narrow compared with a t-interval, because only the seeds that were run can
be drawn.
Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), percentile intervals of a two-way layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rla.metrics.intervals import Interval

DRAWS = 10_000

Rates = np.ndarray  # (seeds, games)


def rates(runs: Sequence[Mapping[str, Sequence[bool]]]) -> Rates:
    """Success rate of each game, one row per seed. Raises `ValueError` unless all runs played the same games."""
    games = sorted(runs[0]) if runs else []
    if not games or any(sorted(run) != games for run in runs):
        raise ValueError("runs of different games, or of none, cannot be averaged game by game")
    return np.array([[np.mean(run[game]) for game in games] for run in runs])


def seed_mean(sample: Rates, *, confidence: float = 0.95, seed: int = 0) -> Interval:
    """The mean over seeds and games, with its interval."""
    drawn = np.clip(redrawn(sample, np.random.default_rng(seed)), 0.0, 1.0)
    return interval(float(sample.mean()), drawn, confidence)


def seed_difference(after: Rates, before: Rates, *, confidence: float = 0.95, seed: int = 0) -> Interval:
    """Mean of `after` minus mean of `before`, paired by game; the seeds of each are drawn independently.

    Raises `ValueError` if they have different numbers of games.
    """
    if after.shape[1] != before.shape[1]:
        raise ValueError(f"{after.shape[1]} games against {before.shape[1]}")
    rng = np.random.default_rng(seed)
    games = rng.integers(after.shape[1], size=(DRAWS, after.shape[1]))
    drawn = redrawn(after, rng, games) - redrawn(before, rng, games)
    return interval(float(after.mean() - before.mean()), drawn, confidence)


def seed_by_seed_difference(after: Rates, before: Rates, *, confidence: float = 0.95, seed: int = 0) -> Interval:
    """Mean of `after` minus mean of `before`, paired by game and by seed: row i of both began with the same model.

    Raises `ValueError` if they have different numbers of seeds or games.
    """
    if after.shape != before.shape:
        raise ValueError(f"{after.shape} seeds and games against {before.shape}")
    sample = after - before
    return interval(float(sample.mean()), redrawn(sample, np.random.default_rng(seed)), confidence)


def redrawn(sample: Rates, rng: np.random.Generator, games: np.ndarray | None = None) -> np.ndarray:
    """(DRAWS,) means of redrawn samples; `games` (DRAWS, games): the drawn games, if given."""
    seeds, count = sample.shape
    chosen = rng.integers(count, size=(DRAWS, count)) if games is None else games
    weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS) / seeds  # (DRAWS, seeds)
    if seeds > 1:
        weights = 1 / seeds + (weights - 1 / seeds) * np.sqrt(seeds / (seeds - 1))
    averaged = np.stack([row[chosen].mean(axis=1) for row in sample], axis=1)  # (DRAWS, seeds)
    means: np.ndarray = (weights * averaged).sum(axis=1)
    return means


def interval(estimate: float, drawn: np.ndarray, confidence: float) -> Interval:
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(estimate, float(low), float(high))
