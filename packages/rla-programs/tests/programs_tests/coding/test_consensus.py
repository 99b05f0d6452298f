"""The program that most programs behave like, by hand."""

from __future__ import annotations

from rla_programs.coding.consensus import consensus
from rla_programs.coding.evaluation import best_of
from rla_programs.coding.rewards import Executions

from programs_tests.coding.test_rewards import table


def test_two_programs_that_behave_alike_win_against_one_that_wrong_tests_speak_for() -> None:
    """Right programs pass one test, a wrong one the two others: the number of tests passed chooses the wrong one."""
    executions = Executions(given=table("1 1 0"), written=table("100 100 011"), parsed=[True] * 3)
    assert (consensus(executions), best_of(executions, 3)) == (1.0, 0.0)


def test_a_test_that_did_not_parse_tells_nobody_apart() -> None:
    executions = Executions(given=table("1 0 0"), written=table("10 11 00"), parsed=[True, False])
    assert consensus(executions) == 0.5  # the first two are one cluster


def test_programs_of_equal_clusters_are_as_likely() -> None:
    """Two clusters of two, with two right programs and one: 3/4 of four. A fifth program stands alone."""
    executions = Executions(given=table("1 1 1 0 0"), written=table("10 10 01 01 11"), parsed=[True, True])
    assert consensus(executions) == 0.75
    assert consensus(Executions(given=table("1 0 0 0"), written=table("0 0 0 0"), parsed=[True])) == 0.25
