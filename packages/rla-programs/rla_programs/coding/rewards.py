"""Rewards of the coding environment, from the tests that programs pass. One task at a time; programs j, tests i
(given), k (written).

    c_ji, s_jk   program j passes the task's test i, the reward model's test k                        (0 or 1)
    share_j      mean_i c_ji                        O_j = 1 iff c_ji = 1 for all i
    G, B         the programs with O = 1, with O = 0            accuracy = |G| / (|G| + |B|)
    policy       R_j = share_j + lambda mean_k s_jk over the valid tests; none valid: R_j = share_j
                   valid: the test parsed, G is not empty, and all of G pass it
    RM test k    all of G pass it:       + |{j in B: s_jk = 0}|     wrong programs that it catches
                 some of G fail it:      - |{j in B: s_jk = 1}|     wrong programs that it lets through
                 it did not parse:       - (|B| + 1)                less than any test that parses can get

Advantages are standardised over the programs, or over the tests, of the task. A task whose accuracy is outside [low,
high] trains neither model. lambda = 0 is the policy reward of the RLAnything paper (3.2.7, Algorithm 2) and of its
code; a positive lambda is our extension. If G is empty, nothing is known about a test: it gets 0 if it parses (the
published code, which never trains on such a task, would call it right).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rla.credit.estimators import TOLERANCE

Row = Sequence[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Executions:
    """Test results: `given[j][i]`, `written[j][k]`; `parsed[k]` says whether the reward model's test k is a test.

    `reference[k]`: whether the task's reference solution passes test k, if there is one and it was run. Entries of
    `written` for a test that did not parse do not matter. Raises `ValueError` for ragged rows.
    """

    given: Sequence[Row]
    written: Sequence[Row]
    parsed: Row
    reference: Row | None = None

    def __post_init__(self) -> None:
        if not self.given or not self.given[0] or len({len(row) for row in self.given}) > 1:
            raise ValueError("executions need a program, a given test, and rows of one length")
        if len(self.written) != len(self.given) or any(len(row) != len(self.parsed) for row in self.written):
            raise ValueError("executions need one row per program and one column per written test")
        if self.reference is not None and len(self.reference) != len(self.parsed):
            raise ValueError("the reference needs one entry per written test")


def pass_shares(executions: Executions) -> list[float]:
    """For each program the share of the given tests that it passes."""
    return [sum(row) / len(row) for row in executions.given]


def solved(executions: Executions) -> list[bool]:
    """For each program whether it passes all given tests."""
    return [all(row) for row in executions.given]


def accuracy(executions: Executions) -> float:
    """Share of the programs that pass all given tests."""
    right = solved(executions)
    return sum(right) / len(right)


def trains(accuracy: float, *, low: float, high: float) -> bool:
    """Whether a task of this accuracy trains policy and reward model: `low` and `high` are included."""
    return low <= accuracy <= high


def consistent(executions: Executions) -> list[bool | None]:
    """For each written test whether all of G pass it; None if it did not parse or G is empty."""
    right = [row for row, ok in zip(executions.written, solved(executions), strict=True) if ok]
    return [
        all(row[test] for row in right) if parsed and right else None for test, parsed in enumerate(executions.parsed)
    ]


def policy_rewards(executions: Executions, *, test_weight: float) -> list[float]:
    """R_j for each program; `test_weight` is lambda."""
    valid = [test for test, passes in enumerate(consistent(executions)) if passes]
    base = pass_shares(executions)
    if not valid:
        return base
    passed = [sum(row[test] for test in valid) / len(valid) for row in executions.written]
    return [share + test_weight * mean for share, mean in zip(base, passed, strict=True)]


def written_rewards(executions: Executions) -> list[float]:
    """The reward model's reward for each written test."""
    wrong = [row for row, ok in zip(executions.written, solved(executions), strict=True) if not ok]
    rewards = []
    for test, passes in enumerate(consistent(executions)):
        through = sum(row[test] for row in wrong)
        if not executions.parsed[test]:
            rewards.append(-float(len(wrong) + 1))
        elif passes is None:
            rewards.append(0.0)
        else:
            rewards.append(float(len(wrong) - through if passes else -through))
    return rewards


def standardise(rewards: Sequence[float]) -> list[float]:
    """(x - mean) / population standard deviation; 0 for a group without spread, as in `rla.credit.estimators`."""
    if not rewards:
        return []
    mean = math.fsum(rewards) / len(rewards)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in rewards) / len(rewards))
    return [(value - mean) / spread if spread > TOLERANCE else 0.0 for value in rewards]
