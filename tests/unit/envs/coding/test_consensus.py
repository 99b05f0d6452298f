"""The program that programs and tests agree on most, by hand."""

from __future__ import annotations

import pytest

from rla.envs.coding.consensus import consensus
from rla.envs.coding.evaluation import best_of
from rla.envs.coding.rewards import Executions
from tests.unit.envs.coding.test_rewards import table


def test_programs_that_agree_win_against_one_that_wrong_tests_speak_for() -> None:
    """Right programs pass one test, a wrong one two: 2 x 1 is as much as 1 x 2, so three programs are as likely. With a
    third right program 3 x 1 is more. The number of tests passed chooses the wrong one in both.
    """
    two = Executions(given=table("1 1 0"), written=table("100 100 011"), parsed=[True] * 3)
    assert (consensus(two), best_of(two, 3)) == (pytest.approx(2 / 3), 0.0)
    three = Executions(given=table("1 1 1 0"), written=table("100 100 100 011"), parsed=[True] * 3)
    assert (consensus(three), best_of(three, 4)) == (1.0, 0.0)


def test_tests_that_did_not_parse_tell_nobody_apart() -> None:
    found = Executions(given=table("1 0 0"), written=table("10 11 00"), parsed=[True, False])
    assert consensus(found) == 0.5  # the first two pass the same test, 2 x 1


def test_where_nobody_passes_anything_each_program_is_as_likely() -> None:
    assert consensus(Executions(given=table("1 0 0 0"), written=table("0 0 0 0"), parsed=[True])) == 0.25
