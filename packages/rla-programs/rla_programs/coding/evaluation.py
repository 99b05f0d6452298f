"""Quality of the programs of a policy and of the tests written by a reward model, with intervals by task.

    pass@1         mean of O over programs
    pass@k         mean over tasks with n >= k programs of 1 - C(n - c, k) / C(n, k); c of the n are right
    best of n      expected O of the program, among n drawn from the task's, that passes most written tests; ties are
                   broken at random
    lead of n      best of n minus the share of the same task's programs that are right, which a random choice
                   achieves; mean over tasks with n programs
    consensus      expected O of a program of the largest cluster of the task's n that pass the same written tests
                   (`rla_programs.coding.consensus`); its lead as above
    UT accuracy    share of the written tests that agree with ground truth: the reference solution passes, or, for a
                   task without one, all of G
    Detect         share of the written tests that all of G pass and all of B fail

A test that did not parse neither agrees nor detects, and counts. UT accuracy is over tasks with a reference or with a
non-empty G, Detect over tasks with non-empty G and B; each metric carries its number of tasks and trials. Choosing
among n uses written tests only: all that parse count, right or not. pass@k is unbiased (Chen et al., 2021), and so is
best of n, the exact mean over all subsets of n programs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, fsum, sqrt
from statistics import fmean

from rla.metrics.intervals import Interval, quantile
from rla_programs.answering.at_k import clustered_mean, pass_at
from rla_programs.coding.consensus import consensus
from rla_programs.coding.rewards import Executions, consistent, solved


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A mean with its interval; None if no task qualifies. `trials` are programs, tests, or one per task."""

    interval: Interval | None
    tasks: int
    trials: int


def evaluate(
    tasks: Mapping[str, Executions], *, k: Sequence[int] = (), n: Sequence[int] = (), confidence: float = 0.95
) -> dict[str, Metric]:
    """All metrics: `pass@1`, `pass@{k}`, `best_of_{n}`, `lead_of_{n}`, `ut_accuracy`, `detect`, and for the largest n
    `consensus_of_{n}` and `consensus_lead_of_{n}`, over tasks with exactly n programs; `tasks` by task id.
    """
    samples: dict[str, Mapping[str, Sequence[float]]] = {"pass@1": _by_task(tasks, solved)}
    for size in k:
        samples[f"pass@{size}"] = {task: [pass_at(solved(e), size)] for task, e in tasks.items() if _enough(e, size)}
    chosen: dict[tuple[str, str], dict[str, float]] = {}  # by its name and the name of its lead
    for size in n:
        names = (f"best_of_{size}", f"lead_of_{size}")
        chosen[names] = {task: best_of(e, size) for task, e in tasks.items() if _enough(e, size)}
    for size in sorted(n)[-1:]:
        names = (f"consensus_of_{size}", f"consensus_lead_of_{size}")
        chosen[names] = {task: consensus(e) for task, e in tasks.items() if len(e.given) == size}
    for (name, _), values in chosen.items():
        samples[name] = {task: [value] for task, value in values.items()}
    samples["ut_accuracy"] = _by_task(tasks, agreeing)
    samples["detect"] = _by_task(tasks, detecting)
    found = {name: _metric(sample, confidence=confidence) for name, sample in samples.items()}
    return found | {lead: _lead(tasks, values, confidence=confidence) for (_, lead), values in chosen.items()}


def _lead(tasks: Mapping[str, Executions], chosen: Mapping[str, float], *, confidence: float) -> Metric:
    """`chosen`: by task, the probability that the chosen program is right."""
    leads = [value - fmean(solved(tasks[task])) for task, value in chosen.items()]
    return Metric(interval=_mean_lead(leads, confidence=confidence), tasks=len(leads), trials=len(leads))


def _mean_lead(leads: Sequence[float], *, confidence: float) -> Interval | None:
    """The mean m of one number x_t in [-1, 1] per task, -+ z sqrt(sum_t (x_t - m)^2 / (G (G - 1))); None without tasks.

    With fewer than two tasks, or if all values are equal, the spread is unknown: [-1, 1].
    """
    if not leads:
        return None
    count, mean = len(leads), fsum(leads) / len(leads)
    squares = fsum((lead - mean) ** 2 for lead in leads)
    if count < 2 or squares < 1e-18:
        return Interval(mean, -1.0, 1.0)
    half = quantile(confidence) * sqrt(squares / (count * (count - 1)))
    return Interval(mean, max(-1.0, mean - half), min(1.0, mean + half))


def best_of(executions: Executions, n: int) -> float:
    """Probability that the program chosen by the written tests, among n different ones of the task, is right.

    The chosen one belongs to a group of `here` programs with equal counts iff none of the n passes more tests and not
    all of them pass fewer: [C(below + here, n) - C(below, n)] / C(all, n). Raises `ValueError` for n out of range.
    """
    right = solved(executions)
    if not 1 <= n <= len(right):
        raise ValueError(f"best of {n} of {len(right)} programs")
    groups: dict[int, list[bool]] = defaultdict(list)
    for row, ok in zip(executions.written, right, strict=True):
        groups[sum(1 for passes, parsed in zip(row, executions.parsed, strict=True) if parsed and passes)].append(ok)
    below, total = 0, Fraction(0)
    for score in sorted(groups):
        here = len(groups[score])
        chosen = comb(below + here, n) - comb(below, n)
        total += Fraction(chosen * sum(groups[score]), comb(len(right), n) * here)
        below += here
    return float(total)


def agreeing(executions: Executions) -> list[bool]:
    """For each written test whether it agrees with ground truth; empty if the ground truth is unknown."""
    if executions.reference is not None:
        return [parsed and passes for parsed, passes in zip(executions.parsed, executions.reference, strict=True)]
    return [bool(passes) for passes in consistent(executions)] if any(solved(executions)) else []


def detecting(executions: Executions) -> list[bool]:
    """For each written test whether it tells right from wrong; empty if all programs are right, or all wrong."""
    right = solved(executions)
    if all(right) or not any(right):
        return []
    wrong = [row for row, ok in zip(executions.written, right, strict=True) if not ok]
    return [bool(ok) and not any(row[test] for row in wrong) for test, ok in enumerate(consistent(executions))]


def _by_task(
    tasks: Mapping[str, Executions], trials: Callable[[Executions], Sequence[bool]]
) -> dict[str, Sequence[float]]:
    return {task: trials(executions) for task, executions in tasks.items()}


def _enough(executions: Executions, size: int) -> bool:
    return len(executions.given) >= size


def _metric(sample: Mapping[str, Sequence[float]], *, confidence: float) -> Metric:
    return Metric(
        interval=clustered_mean(sample, confidence=confidence),
        tasks=sum(1 for values in sample.values() if values),
        trials=sum(len(values) for values in sample.values()),
    )
