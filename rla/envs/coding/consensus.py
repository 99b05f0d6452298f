"""The program that programs and written tests agree on most: dual execution agreement.

    consensus set    programs of a task that pass the same written tests, of those that parse
    score            programs of the set x tests that they pass
    choice           a program of the set with the highest score; among equals each program is as likely

A wrong test is passed by wrong programs alone, so where most tests are wrong the number of tests passed speaks against
right programs. Right programs agree with each other on every test, and wrong ones seldom do.
Source: CodeT (Chen et al., ICLR 2023), equation 2.
"""

from __future__ import annotations

from collections import defaultdict

from rla.envs.coding.rewards import Executions, solved


def consensus(executions: Executions) -> float:
    """Probability that the program chosen among all of the task is right."""
    sets: dict[tuple[bool, ...], list[bool]] = defaultdict(list)
    for row, right in zip(executions.written, solved(executions), strict=True):
        sets[tuple(passes for passes, parsed in zip(row, executions.parsed, strict=True) if parsed)].append(right)
    scores = {passed: len(members) * sum(passed) for passed, members in sets.items()}
    best = max(scores.values())
    chosen = [right for passed, members in sets.items() if scores[passed] == best for right in members]
    return sum(chosen) / len(chosen)
