"""The program that most programs of a task behave like, as far as the written tests tell them apart.

    cluster    programs of a task that pass the same written tests, of those that parse
    choice     a program of the largest cluster; among equals each program is as likely

A wrong test is passed by wrong programs alone, so where most tests are wrong the number of tests passed speaks against
right programs. This choice does not ask whether a test is right: right programs behave alike on all of them, and wrong
ones seldom do.
Source: AlphaCode (Li et al., Science 2022), which clusters programs by their outputs on written inputs.
"""

from __future__ import annotations

from collections import defaultdict

from rla_programs.coding.rewards import Executions, solved


def consensus(executions: Executions) -> float:
    """Probability that the program chosen among all of the task is right."""
    clusters: dict[tuple[bool, ...], list[bool]] = defaultdict(list)
    for row, right in zip(executions.written, solved(executions), strict=True):
        clusters[tuple(passes for passes, parsed in zip(row, executions.parsed, strict=True) if parsed)].append(right)
    most = max(map(len, clusters.values()))
    chosen = [right for members in clusters.values() if len(members) == most for right in members]
    return sum(chosen) / len(chosen)
