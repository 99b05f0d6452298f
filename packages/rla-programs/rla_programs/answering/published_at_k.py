"""The estimators of the published evaluation, by their names: best@k and maj@k by bootstrap.

    draws    1,000 times k of the n answers, with replacement; NumPy's legacy generator, seeded with 42 for every
             question and every k
    best@k   mean over the draws of the best result
    maj@k    mean over the draws of the result of the first drawn answer in the largest class; among equally large
             classes the one drawn first. The class of an answer is the exact text that was compared, and "" if there
             is no text

Draws with replacement miss answers: in expectation best@n is 1 - (1 - c/n)^n, whereas pass@n is 1. With one right
answer of 32, best@32 is 0.638 in expectation and 0.620 with these draws. These estimators serve for comparison with
published figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

BOOTSTRAPS, LEGACY_SEED = 1000, 42


@lru_cache(maxsize=16)
def bootstrap_draws(n: int, k: int) -> npt.NDArray[Any]:
    """(1000, k) indices below n: the results of 1,000 successive calls of `choice(n, size=k, replace=True)`."""
    return np.random.RandomState(LEGACY_SEED).randint(0, n, size=(BOOTSTRAPS, k))


def best_values(right: Sequence[bool], sizes: Sequence[int]) -> list[float]:
    """best@k for each k of `sizes`."""
    results = np.asarray(right, dtype=bool)
    return [float(results[bootstrap_draws(len(results), k)].any(axis=1).mean()) for k in sizes]


def published_majority_values(votes: Sequence[str | None], right: Sequence[bool], sizes: Sequence[int]) -> list[float]:
    """maj@k for each k of `sizes`."""
    numbers: dict[str, int] = {}
    classes = np.array([numbers.setdefault(vote or "", len(numbers)) for vote in votes], dtype=np.int64)
    results = np.asarray(right, dtype=bool)
    found = []
    for k in sizes:
        indices = bootstrap_draws(len(results), k)
        drawn, rows = classes[indices], np.arange(BOOTSTRAPS)
        counts = np.bincount((drawn + len(numbers) * rows[:, None]).ravel(), minlength=BOOTSTRAPS * len(numbers))
        support = counts.reshape(BOOTSTRAPS, len(numbers))[rows[:, None], drawn]
        first = support.argmax(axis=1)  # the first position with an answer of the winning class
        found.append(float(results[indices[rows, first]].mean()))
    return found
