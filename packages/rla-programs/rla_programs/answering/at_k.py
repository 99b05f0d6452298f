"""Unbiased figures for k answers to one question, estimated from n given answers of which c are right.

    avg@n    c / n: the exact mean, which is the same for every smaller k
    pass@k   1 - C(n - c, k) / C(n, k): the probability that one of k different answers is right (Chen et al., 2021)
    maj@k    the expected result of a vote among k different answers: each votes for its class, the class with the most
             votes wins, and ties are broken at random. A class is worth the share of its answers that are right, 1 or
             0 if the classes tell right from wrong. An answer without a class does not vote; a vote without voters is
             lost.

pass@k is computed with integers and rounded once. maj@k is exact for k = 1 and k = n, which have one subset of each
kind to count. In between it is the mean over `DRAWS` subsets, the same ones for the same questions. A question with
fewer than k answers has no value for k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, fsum, inf
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rla.metrics.intervals import Interval, by_cluster
from rla_programs.answering.published_at_k import best_values, published_majority_values

Estimator = Literal["unbiased", "published"]
DRAWS, SEED = 1000, 42  # subsets of a question for maj@k

Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answers to one question. `source`: the question's data set. `votes`: the class of each answer, None for an
    answer without a class; empty if answers do not have classes.
    """

    source: str
    right: Sequence[bool]
    votes: Sequence[str | None] | None = None


def sizes_up_to(n: int) -> list[int]:
    """The powers of two up to n, and n."""
    return sorted({n, *(2**power for power in range(n.bit_length()))}) if n else []


def pass_at(right: Sequence[bool], k: int) -> float:
    """Probability that at least one of k different answers is right. Raises `ValueError` for k > n."""
    if not 1 <= k <= len(right):
        raise ValueError(f"pass@{k} of {len(right)} answers")
    return _solved_chance(len(right), sum(right), k)


@cache
def _solved_chance(n: int, c: int, k: int) -> float:
    """pass@k if c of n answers are right."""
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)


def majority_values(
    votes: Sequence[str | None], right: Sequence[bool], sizes: Sequence[int], random: np.random.Generator
) -> list[float]:
    """maj@k for each k of `sizes`. Raises `ValueError` for a k outside [1, n]."""
    n = len(right)
    if not all(1 <= k <= n for k in sizes):
        raise ValueError(f"maj@k of {n} answers for k in {list(sizes)}")
    names, classes = _classes_of(votes)
    worth = np.zeros(names)
    for label in range(names):
        worth[label] = np.mean([ok for ok, own in zip(right, classes, strict=True) if own == label])
    orders = random.random((DRAWS, n)).argsort(axis=1) if any(1 < k < n for k in sizes) else np.arange(n)[None]
    found = []
    for k in sizes:
        subsets = np.arange(n)[:, None] if k == 1 else np.arange(n)[None] if k == n else orders[:, :k]
        found.append(float(_vote_results(classes[subsets], worth).mean()))
    return found


def _classes_of(votes: Sequence[str | None]) -> tuple[int, Values]:
    """The number of classes, and (n,) the class index of each vote; no vote has the index after the last class."""
    numbers = {vote: number for number, vote in enumerate(dict.fromkeys(vote for vote in votes if vote is not None))}
    return len(numbers), np.array([len(numbers) if vote is None else numbers[vote] for vote in votes], dtype=np.int64)


def _vote_results(drawn: Values, worth: Values) -> Values:
    """(subsets,): the mean worth of the classes with the most votes. `drawn`: (subsets, k) classes, numbered as in
    `_classes_of`; `worth`: (classes,).
    """
    count, names = len(drawn), len(worth)
    places = drawn + (names + 1) * np.arange(count)[:, None]
    counts = np.bincount(places.ravel(), minlength=count * (names + 1)).reshape(count, names + 1)[:, :names]
    most = counts.max(axis=1, initial=0)
    winners = (counts == most[:, None]) & (most > 0)[:, None]
    return np.asarray(winners @ worth / np.maximum(winners.sum(axis=1), 1))


def figures_at_k(questions: Mapping[str, Answered], *, estimator: Estimator = "unbiased") -> dict[str, Any]:
    """All figures of an evaluation, `questions` by their ids: {"estimator", "n", figure: {k: value}}. n is the largest
    number of answers to a question. Figures: `avg` for n only, `pass` (published: `best`), and `maj` if answers have
    classes.
    """
    asked = {name: one for name, one in sorted(questions.items()) if one.right}
    n = max((len(one.right) for one in asked.values()), default=0)
    sizes = sizes_up_to(n)
    sources = {name: one.source for name, one in asked.items()}
    average = {n: {name: float(np.mean(one.right)) for name, one in asked.items()}} if n else {}
    solved = _best_of_questions(asked, sizes) if estimator == "published" else _solved_of_questions(asked, sizes)
    samples = {"avg": average, "best" if estimator == "published" else "pass": solved}
    if any(one.votes is not None for one in asked.values()):
        samples["maj"] = _majorities(asked, sizes, estimator)
    return {
        "estimator": estimator,
        "n": n,
        **{
            figure: {str(k): _mean_by_source(values, sources) for k, values in by_size.items()}
            for figure, by_size in samples.items()
        },
    }


def _solved_of_questions(asked: Mapping[str, Answered], sizes: Sequence[int]) -> dict[int, dict[str, float]]:
    return {k: {name: pass_at(one.right, k) for name, one in asked.items() if k <= len(one.right)} for k in sizes}


def _best_of_questions(asked: Mapping[str, Answered], sizes: Sequence[int]) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {k: {} for k in sizes}
    for name, one in asked.items():
        own = [k for k in sizes if k <= len(one.right)]
        for k, value in zip(own, best_values(one.right, own), strict=True):
            found[k][name] = value
    return found


def _majorities(
    asked: Mapping[str, Answered], sizes: Sequence[int], estimator: Estimator
) -> dict[int, dict[str, float]]:
    """k -> question -> maj@k, for the questions whose answers have classes."""
    random = np.random.default_rng(SEED)
    found: dict[int, dict[str, float]] = {k: {} for k in sizes}
    for name, one in asked.items():
        if one.votes is not None:
            own = [k for k in sizes if k <= len(one.right)]
            values = (
                published_majority_values(one.votes, one.right, own)
                if estimator == "published"
                else majority_values(one.votes, one.right, own, random)
            )
            for k, value in zip(own, values, strict=True):
                found[k][name] = value
    return found


def _mean_by_source(values: Mapping[str, float], sources: Mapping[str, str]) -> dict[str, Any]:
    """The mean over questions with its interval, `macro`: the mean of the sources' means, and each source's mean."""
    of_source: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        of_source.setdefault(sources[name], {})[name] = value
    each = {source: _mean_of_questions(own) for source, own in sorted(of_source.items())}
    macro = sum(found["estimate"] for found in each.values()) / len(each) if each else None
    return {**_mean_of_questions(values), "macro": macro, "by_source": each}


def _mean_of_questions(values: Mapping[str, float]) -> dict[str, Any]:
    """The mean with the question as the unit of sampling: `estimate`, `low`, `high`, and `questions`, their number."""
    interval = clustered_mean({name: [min(max(value, 0.0), 1.0)] for name, value in values.items()})
    if interval is None:
        return {"estimate": None, "low": None, "high": None, "questions": 0}
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high, "questions": len(values)}


def clustered_mean(sample: Mapping[str, Sequence[float]], *, confidence: float = 0.95) -> Interval | None:
    """The mean of values in [0, 1], a mapping from task to its values, with tasks as clusters; None without any.

    Values such as chances vary less than trials, so nothing bounds their effective number. Raises `ValueError` for
    other values.
    """
    filled = [values for values in sample.values() if values]
    if not all(0.0 <= value <= 1.0 for values in filled for value in values):
        raise ValueError("values must lie between 0 and 1")
    return by_cluster([(fsum(values), len(values)) for values in filled], most=inf, confidence=confidence)
