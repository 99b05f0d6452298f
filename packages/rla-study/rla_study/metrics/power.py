"""How many seeds would tell two arms apart: the parts of a difference's variance, and how more seeds reduce them.

Both arms have the same seeds and the same games; d_sg is the difference of their success rates with seed s in game g.

    Var(mean d) = seed / S + game / G + (cell + evaluation / times) / (S G)

    evaluation   of d_sg, because few episodes were played: the mean over cells of p (1 - p) / (k - 1), of both arms
    cell         other effects of a seed on one game:  MS_cells - evaluation
    seed         its effect on all games:              (MS_seeds - MS_cells) / G
    game         how games differ in d:                (MS_games - MS_cells) / S

MS are the mean squares of a layout of S seeds by G games with one value per cell; a negative variance counts as 0.
Playing `times` as many episodes of each game reduces only `evaluation`; more seeds reduce everything but `game`. A
difference is settled by the smallest S with

    (t_(1 - a/2, S - 1) + t_(power, S - 1)) sqrt(Var) <= |difference|

Source: Searle, Casella and McCulloch, Variance Components (1992), chapter 4; Cohen, Statistical Power Analysis (1988).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from rla.metrics.intervals import quantile
from rla_study.metrics.student import student_quantile

MOST_SEEDS = 1000
FEWEST = 2  # seeds or games needed to estimate a variance


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceSpread:
    """The parts of a difference's variance, in squared units of the rates."""

    seed: float
    game: float = 0.0
    cell: float = 0.0
    evaluation: float = 0.0

    def variance(self, *, seeds: int, games: int, times: float = 1.0) -> float:
        """Variance of the mean over seeds and games. `times`: episodes per game, as a multiple of those played."""
        return self.seed / seeds + self.game / games + (self.cell + self.evaluation / times) / (seeds * games)

    def of_one_seed(self, *, games: int, times: float = 1.0) -> float:
        """The variance between single seeds on these games: the seeds' own, and that of their cells and episodes."""
        return self.seed + (self.cell + self.evaluation / times) / games


def difference_spread(differences: np.ndarray, noise: np.ndarray) -> DifferenceSpread:
    """From (seeds, games) differences, and the variance of each that is due to its episodes (`rate_noise`).

    Raises `ValueError` with fewer than two seeds or games, or if the shapes differ.
    """
    seeds, games = differences.shape
    if min(seeds, games) < FEWEST or noise.shape != differences.shape:
        raise ValueError(f"{differences.shape} differences and {noise.shape} variances; two seeds and games are needed")
    mean, by_seed, by_game = differences.mean(), differences.mean(axis=1), differences.mean(axis=0)
    left = differences - by_seed[:, None] - by_game[None, :] + mean
    cells = float((left**2).sum()) / ((seeds - 1) * (games - 1))
    of_seeds = games * float(((by_seed - mean) ** 2).sum()) / (seeds - 1)
    of_games = seeds * float(((by_game - mean) ** 2).sum()) / (games - 1)
    evaluation = float(noise.mean())
    return DifferenceSpread(
        seed=max(of_seeds - cells, 0.0) / games,
        game=max(of_games - cells, 0.0) / seeds,
        cell=max(cells - evaluation, 0.0),
        evaluation=evaluation,
    )


def rate_noise(wins: Sequence[bool]) -> float:
    """Unbiased estimate of the variance of a success rate; 0 for a single episode, which gives no estimate."""
    count = len(wins)
    rate = sum(wins) / count
    return rate * (1 - rate) / (count - 1) if count > 1 else 0.0


def spread_of_seeds(differences: Sequence[float]) -> DifferenceSpread:
    """From one difference per seed: the variance due to games and episodes is counted as the seeds' own.

    Raises `ValueError` with fewer than two.
    """
    if len(differences) < FEWEST:
        raise ValueError("one seed has no variance")
    return DifferenceSpread(seed=float(np.var(differences, ddof=1)))


def seeds_to_settle(
    difference: float,
    spread: DifferenceSpread,
    *,
    games: int,
    times: float = 1.0,
    confidence: float = 0.95,
    power: float = 0.8,
) -> int | None:
    """The number of seeds with which the interval excludes 0 in a share `power` of experiments, if `difference` is the
    true one.

    None if no number of seeds is enough on these games, or if more than MOST_SEEDS are needed.
    """
    least = (quantile(confidence) + quantile(2 * power - 1)) * sqrt(spread.game / games)
    if abs(difference) <= least:
        return None

    def settles(seeds: int) -> bool:
        factor = student_quantile(0.5 + confidence / 2, seeds - 1) + student_quantile(power, seeds - 1)
        return factor * sqrt(spread.variance(seeds=seeds, games=games, times=times)) <= abs(difference)

    if not settles(MOST_SEEDS):
        return None
    return bisect_left(range(MOST_SEEDS), True, lo=FEWEST, key=settles)
