"""The program that most programs of a task agree with, as far as the written tests tell them apart.

    cluster    programs of a task that pass the same set of the written tests that parse
    choice     a random program of the largest cluster, with ties between clusters broken at random

Only wrong programs pass a wrong test, so if most tests are wrong, the number of tests passed counts against right
programs. This choice does not ask whether a test is right: right programs agree on all of them, and wrong ones seldom
do.
Source: AlphaCode (Li et al., Science 2022), which clusters programs by their outputs on written inputs.
"""

from __future__ import annotations

from collections import defaultdict

from rla_programs.coding.rewards import Executions, solved


def consensus(executions: Executions) -> float:
    """Probability that the program chosen among all programs of the task is right."""
    clusters: dict[tuple[bool, ...], list[bool]] = defaultdict(list)
    for row, right in zip(executions.written, solved(executions), strict=True):
        clusters[tuple(passes for passes, parsed in zip(row, executions.parsed, strict=True) if parsed)].append(right)
    most = max(map(len, clusters.values()))
    chosen = [right for members in clusters.values() if len(members) == most for right in members]
    return sum(chosen) / len(chosen)
