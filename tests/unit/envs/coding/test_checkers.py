"""When an answer agrees with a test, and how a checker program is asked."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rla.envs.coding.data.checkers import Checker, CheckerKind, agrees, checker_calls, checker_verdict

TOKENS = Checker()
FLOATS = Checker(kind=CheckerKind.FLOATS, absolute=0.01, relative=0.001)
EXACT = Checker(kind=CheckerKind.EXACT)
VALUES = Checker(kind=CheckerKind.VALUES, absolute=0.01, relative=0.001)


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("1 2\n3\n", "1 2 3", True),
        ("1 2", "1  2 \r\n", True),
        ("1 2", "12", False),
        ("Yes", "yes", False),
        ("1.0", "1", False),
        ("", "", True),
        ("", "\n", True),
        ("", "0", False),
    ],
)
def test_tokens(expected: str, actual: str, same: bool) -> None:
    assert agrees(TOKENS, expected, actual) is same


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("0.5", "0.509", True),  # within 0.01
        ("0.5", "0.511", False),
        ("5000", "5004.9", True),  # within 0.1%: 5
        ("5000", "5005.1", False),
        ("100", "101", False),  # integers are equal or not
        ("100", "+100", True),
        ("1e3", "1000.0", True),
        ("x 0.5", "x 0.501", True),
        ("x 0.5", "y 0.5", False),
        ("0.5", "0.5 0.5", False),
        ("10", "1_0", False),  # Python's own spelling, not a number
        ("0.5", "nan", False),
        ("0.5", "1e999", False),
        ("1e999", "2e999", True),
    ],
)
def test_floats(expected: str, actual: str, same: bool) -> None:
    assert agrees(FLOATS, expected, actual) is same


def test_exact_text_but_for_the_last_line_end() -> None:
    assert agrees(EXACT, "a\nb", "a\r\nb\n")
    assert not agrees(EXACT, "a b", "a  b")
    assert not agrees(EXACT, "a\n", "a\n\n")


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ([1, 2], (1, 2), True),
        ([[1], []], ((1,), ()), True),
        ([1, 2], [2, 1], False),
        ([1], 1, False),
        (2, 2.0, True),
        (0.5, 0.509, True),
        (0.5, 0.511, False),
        (10**30, 10**30 + 1, False),  # integers are equal or not, however big
        (0.5, 10**400, False),
        (True, 1, True),
        ("1", 1, False),
        (None, None, True),
        (None, False, False),
        ({"a": [1.0]}, {"a": [1.001]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (0.5, float("nan"), False),
    ],
)
def test_values(expected: Any, actual: Any, same: bool) -> None:
    assert agrees(VALUES, expected, actual) is same


def test_hostile_answers_take_linear_time() -> None:
    deep: Any = 1
    for _ in range(200_000):
        deep = [deep]
    started = time.process_time()
    assert not agrees(VALUES, [[1]], deep)
    assert not agrees(FLOATS, "1.5", "9" * 3_000_000)
    assert not agrees(FLOATS, "1.5", "1" * 3_000_000 + "e")
    assert not agrees(TOKENS, "1", "1 " * 1_000_000)
    assert time.process_time() - started < 3.0


def test_a_checker_program_is_called_with_data_and_only_true_accepts() -> None:
    checker = Checker(kind=CheckerKind.PROGRAM, program="def check(input, expected, actual): return True")
    with pytest.raises(ValueError, match="sandbox"):
        agrees(checker, "1", "1")
    hostile = "') or True or ('"
    calls = checker_calls([("3\n", "1 2\n", hostile), ([1], [2], 3)])
    assert [tuple(call) for call in calls] == [("check", ("3\n", "1 2\n", hostile)), ("check", ([1], [2], 3))]
    assert checker_verdict(True)
    assert not any(checker_verdict(value) for value in (False, None, 1, "True", [True]))
