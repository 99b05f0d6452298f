"""Rewards of programs and of written tests, worked out by hand."""

from __future__ import annotations

from math import sqrt

import pytest
from rla_programs.coding.rewards import (
    Executions,
    accuracy,
    consistent,
    pass_shares,
    policy_rewards,
    solved,
    standardise,
    trains,
    written_rewards,
)


def table(text: str) -> list[list[bool]]:
    """`"110 010"`: two rows."""
    return [[sign == "1" for sign in row] for row in text.split()]


# Programs 0 and 1 are right; of the five written tests
#   0: all of G pass, one of B fails (+1)     1: all of G pass, both of B fail (+2)     2: all pass (+0)
#   3: program 1 fails, both of B pass (-2)   4: did not parse (-3)
HALF = Executions(given=table("111 111 110 010"), written=table("11110 11100 00110 10110"), parsed=table("11110")[0])


def test_programs_earn_their_share_of_the_given_tests() -> None:
    assert pass_shares(HALF) == pytest.approx([1, 1, 2 / 3, 1 / 3])
    assert solved(HALF) == [True, True, False, False]
    assert accuracy(HALF) == 0.5
    assert policy_rewards(HALF, test_weight=0.0) == pass_shares(HALF)


def test_lambda_mixes_in_the_valid_tests() -> None:
    # Valid are tests 0, 1, 2: programs pass 3, 3, 1 and 2 of them.
    assert consistent(HALF) == [True, True, True, False, None]
    assert policy_rewards(HALF, test_weight=0.5) == pytest.approx([1.5, 1.5, 2 / 3 + 1 / 6, 1 / 3 + 1 / 3])


def test_a_written_test_earns_what_it_catches_and_loses_what_it_lets_through() -> None:
    assert written_rewards(HALF) == [1, 2, 0, -2, -3]


def test_what_does_not_parse_is_strictly_worst() -> None:
    worst = Executions(given=table("1 0 0 0"), written=table("00 10 10 10"), parsed=[True, False])
    assert written_rewards(worst) == [-3, -4]


def test_where_no_program_is_right_nothing_is_known_of_a_test() -> None:
    lost = Executions(given=table("10 00"), written=table("101 000"), parsed=[True, True, False])
    assert written_rewards(lost) == [0, 0, -3]
    assert policy_rewards(lost, test_weight=1.0) == [0.5, 0.0]


def test_where_all_are_right_nothing_is_caught() -> None:
    won = Executions(given=table("1 1"), written=table("100 110"), parsed=[True, True, False])
    assert written_rewards(won) == [0, 0, -1]


def test_the_band_includes_its_ends() -> None:
    assert [trains(a, low=0.2, high=0.8) for a in (0.19, 0.2, 0.5, 0.8, 0.81)] == [False, True, True, True, False]


def test_advantages_are_standardised_over_the_task() -> None:
    # 1, 2, 0, -2, -3: mean -0.4, squared deviations 1.96 + 5.76 + 0.16 + 2.56 + 6.76 = 17.2, variance 3.44
    assert standardise(written_rewards(HALF)) == pytest.approx([x / sqrt(3.44) for x in (1.4, 2.4, 0.4, -1.6, -2.6)])
    assert standardise([0.1 + 0.2, 0.3]) == [0.0, 0.0]
    assert standardise([]) == []


def test_ragged_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of one length"):
        Executions(given=table("11 1"), written=table("1 1"), parsed=[True])
    with pytest.raises(ValueError, match="one column per written test"):
        Executions(given=table("1 1"), written=table("11 1"), parsed=[True])
    with pytest.raises(ValueError, match="reference"):
        Executions(given=table("1"), written=table("1"), parsed=[True], reference=[])
