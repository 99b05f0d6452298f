"""When an answer agrees with a test, and how a checker program is asked."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rla_programs.coding.data.checkers import Checker, CheckerKind, agrees, checker_calls, checker_verdict
from rla_programs.coding.data.problems import StdioTest
from rla_programs.coding.importing.columns import stdio_checker, values_checker

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
        ("5000.0", "5004.9", True),  # within 0.1%: 5
        ("5000.0", "5005.1", False),
        ("5000.0", "5004", True),
        ("100", "101", False),  # integers are equal or not
        ("5000", "5004.9", False),
        ("5000", "5000.00", True),
        ("1000000007", "1000000000.0", False),
        ("9007199254740993", "9007199254740993.0", True),  # no float, but the same number
        ("9007199254740993", "9007199254740992.0", False),
        ("100000000000000000000", "1e20", True),
        ("100", "+100", True),
        ("1e3", "1000.0", True),
        ("x 0.5", "x 0.501", True),
        ("x 0.5", "y 0.5", False),
        ("0.5", "0.5 0.5", False),
        ("10", "1_0", False),  # Python's own spelling, not a number
        ("0.5", "nan", False),
        ("0.5", "1e999", False),
        ("1e999", "2e999", False),
        ("1e999", "10e998", True),
        ("1e999", "1" + "0" * 399, False),
        ("1e308", "1e309", False),
        ("1e-999", "0", True),
        ("0.5", "1e99999999999", False),
    ],
)
def test_floats(expected: str, actual: str, same: bool) -> None:
    assert agrees(FLOATS, expected, actual) is same


PRINTED = [  # what is expected, what is printed, whether it is right; the checker is the one that an import chooses
    ("0.00001", "1e-05", True),
    ("1e-05", "0.00001", True),
    ("1e-05", "1e-05", True),
    ("1e-05", "1E-5", True),
    ("1e-05", "0.000010", True),
    ("1e-05", "0.00002", False),
    ("1e-05", "0.000011", False),
    ("1e-05", "0", False),
    ("1e-07", "2e-07", False),
    ("1e-07", "0.0000001", True),
    ("2.5e-10", "0.00000000025", True),
    ("2.5e-10", "0.000000000", False),
    ("1e5", "100000", True),
    ("1e5", "100000.0", True),
    ("1e5", "100001", False),
    ("1.5e3", "1500.0", True),
    ("0.333333333", "0.3333333", True),
    ("0.333333333", "0.33", False),
    ("0.333333333", "1/3", False),
    ("3.0", "3", True),
    ("3.0", "3.0000000001", True),
    ("3.0", "3.1", False),
    ("3.", "3", True),
    ("-0.0", "0.0", True),
    ("-0.5", "0.5", False),
    ("-0.5", "\u22120.5", False),
    ("123456789.125", "123456789.126", True),
    ("123456789.125", "123457789.126", False),
    ("1 0.5\n2 0.25", "1 0.50\n2 0.250", True),
    ("1 0.5\n2 0.25", "1 0.5\n3 0.25", False),
    ("1 0.5", "1.5 0.5", False),
    ("0.5", "0.5 0.5", False),
    ("0.5", "", False),
    ("0.5", "0,5", False),
    ("0.5", "nan", False),
    ("0.5", "inf", False),
    ("0.5", "50%", False),
    ("inf", "inf", True),
    ("inf", "-inf", False),
    ("nan", "nan", True),
    ("3", "3", True),
    ("3", "3\r\n", True),
    ("3", "+3", False),
    ("3", "03", False),
    ("3", "3.5", False),
    ("007", "7", False),
    ("0101", "101", False),
    ("Yes", "Yes", True),
    ("Yes", "yes", False),
    ("YES\nNO", "YES NO", True),
    ("YES\nNO", "YES", False),
    ("abc", "abc.", False),
    ("1,000", "1000", False),
    ("[1, 2]", "[1, 2]", True),
    ("[1, 2]", "[2, 1]", False),
    ("-1", "-1", True),
    ("-1", "- 1", False),
    ("9007199254740993 0.5", "9007199254740993 0.5", True),
    ("9007199254740993 0.5", "9007199254740992 0.5", False),
    ("9" * 5000, "9" * 5000, True),
    ("9" * 5000, "9" * 4999 + "8", False),
    ("9" * 5000, "9" * 5001, False),
    ("9" * 5000 + " 0.5", "9" * 5000 + " 0.50", True),
    ("9" * 5000 + " 0.5", "9" * 4999 + "8 0.5", False),
]


@pytest.mark.parametrize(("expected", "printed", "right"), PRINTED)
def test_what_a_program_prints(expected: str, printed: str, right: bool) -> None:
    checker = stdio_checker([StdioTest("", expected)])
    assert agrees(checker, expected, printed) is right


RETURNED: list[tuple[Any, Any, bool]] = [
    (1e-7, 2e-7, False),
    (1e-7, 1e-7, True),
    (1e-7, 0.0, False),
    (0.5, 0.5000001, True),
    (0.5, 0.51, False),
    (0.0, 1e-9, True),
    (10**5000, 10**5000, True),
    (10**5000, 10**5000 + 1, False),
    ([10**5000], [10**5000], True),
    (10**5000, 1e308, False),
    ([1, 2], [1.0, 2.0], True),
    ([1, 2], [2, 1], False),
    ([[1], [2]], ((1,), (2,)), True),
    ("1", 1, False),
    (True, 1, True),
    (None, [], False),
    ([], [], True),
    ({"a": 1e-9}, {"a": 2e-9}, False),
]


@pytest.mark.parametrize(("expected", "returned", "right"), RETURNED)
def test_what_a_function_returns(expected: Any, returned: Any, right: bool) -> None:
    assert agrees(values_checker([expected]), expected, returned) is right


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
        (2, 2.0000001, False),
        (2.0, 2, True),
        (2.0, 2.0000001, True),
        (1000000007, 1000000000.0, False),
        (2**53 + 1, float(2**53), False),  # no float holds it
        (10**20, 1e20, True),
        (10**400, float("inf"), False),
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
        (1e308, float("inf"), False),
        (float("inf"), float("inf"), True),
        (float("inf"), 1e308, False),
        (float("inf"), float("-inf"), False),
    ],
)
def test_values(expected: Any, actual: Any, same: bool) -> None:
    assert agrees(VALUES, expected, actual) is same


INTEGERS = st.integers() | st.integers(-(2**70), 2**70)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = INTEGERS | st.floats()


@given(expected=INTEGERS, actual=NUMBERS)
def test_an_expected_integer_is_met_by_itself_alone(expected: int, actual: float) -> None:
    same = Fraction(actual) == expected if math.isfinite(actual) else False
    assert agrees(VALUES, expected, actual) is same
    assert agrees(VALUES, [[expected]], ((actual,),)) is same


@given(expected=INTEGERS, other=INTEGERS, zeros=st.integers(0, 3))
def test_an_expected_integer_in_a_text_is_met_by_itself_alone(expected: int, other: int, zeros: int) -> None:
    for actual in (expected, other):
        assert agrees(FLOATS, f"x {expected}", f"x {actual}.{'0' * zeros}") is (actual == expected)
    assert not agrees(FLOATS, str(expected), f"{expected}.{'0' * zeros}1")


@given(expected=FINITE, actual=NUMBERS)
def test_an_expected_fraction_has_its_tolerance_and_no_more(expected: float, actual: float) -> None:
    if math.isfinite(actual):
        bound = max(VALUES.absolute, VALUES.relative * abs(expected))
        off = abs(Fraction(actual) - Fraction(expected)) / Fraction(bound)
        if not Fraction(999, 1000) < off < Fraction(1001, 1000):  # there rounding decides
            assert agrees(VALUES, expected, actual) is (off < 1)
    else:
        assert not agrees(VALUES, expected, actual)


@given(mantissa=st.integers(1, 99), other=st.integers(1, 99), exponent=st.integers(309, 10**8))
def test_a_number_beyond_the_floats_is_met_by_itself_alone(mantissa: int, other: int, exponent: int) -> None:
    same = mantissa == other
    assert agrees(FLOATS, f"{mantissa}.0e{exponent}", f"{other}e{exponent}") is same
    assert agrees(FLOATS, f"{mantissa}e{exponent}", f"{other}0e{exponent - 1}") is same
    assert not agrees(FLOATS, f"{mantissa}e{exponent}", f"-{mantissa}e{exponent}")


@given(value=st.recursive(st.none() | st.booleans() | st.text() | NUMBERS.filter(lambda n: n == n), st.lists))
def test_a_value_agrees_with_itself(value: Any) -> None:
    assert agrees(VALUES, value, value)


def test_hostile_answers_take_linear_time() -> None:
    deep: Any = 1
    for _ in range(200_000):
        deep = [deep]
    started = time.process_time()
    assert not agrees(VALUES, [[1]], deep)
    assert not agrees(FLOATS, "1.5", "9" * 3_000_000)
    assert not agrees(FLOATS, "1", "1e999999999")
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
