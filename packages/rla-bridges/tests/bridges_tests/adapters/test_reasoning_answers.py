"""What a verifier may be given: nothing that it would run, and nothing that it believes without reason."""

from __future__ import annotations

import pytest
from rla_bridges.adapters.reasoning_answers import is_calculation, is_literal, may_be_verified

LIST = {"answer": "1 2 3", "metadata": {}}
QUEENS = {"answer": "Q _\n_ Q", "metadata": {"valid_answers": ["Q _\n_ Q", "_ Q\nQ _"]}}
NUMBERS = {"answer": "(2+3)*4", "metadata": {"numbers": [4, 2, 3]}}


@pytest.mark.parametrize("answer", ["1 2 3", "[1, 2, 3]", "['a', ('b', 2.5)]"])
def test_an_exact_answer_and_literals_may_be_evaluated(answer: str) -> None:
    assert may_be_verified("spiral_matrix", answer, LIST)


@pytest.mark.parametrize(
    "answer", ["open('x','w')", "__import__('os').system('true')", "[1 for _ in range(9)]", "1 2 4", "exit", "9**9**9"]
)
def test_nothing_else_may_be_evaluated(answer: str) -> None:
    assert not may_be_verified("spiral_matrix", answer, LIST)


def test_every_stored_solution_is_an_exact_answer() -> None:
    assert may_be_verified("n_queens", "_ Q\nQ _", QUEENS)
    assert not may_be_verified("n_queens", "Q Q\n_ _", QUEENS)


@pytest.mark.parametrize("answer", ["(2+3)*4", "4 * (3 + 2)", "4/2-3"])
def test_a_calculation_uses_each_number_once(answer: str) -> None:
    assert may_be_verified("countdown", answer, NUMBERS)


@pytest.mark.parametrize(
    "answer", ["20", "2+3+4+4", "2**3*4", "x+2+3+4", "(2).real+3+4", "2,3,4", "2+3+4 #", "٢+3+4", "2+3+4e9", "2+" * 200]
)
def test_what_calculates_with_anything_else_is_refused(answer: str) -> None:
    assert not may_be_verified("countdown", answer, NUMBERS)


def test_long_numbers_are_no_calculation_even_where_they_are_given() -> None:
    assert is_calculation("1 + 2", [1, 2])
    assert not is_calculation("1000000000 + 2", [1000000000, 2])


def test_no_number_is_not_verified_where_comparisons_would_hold() -> None:
    entry = {"answer": "1.0 + 2.0i", "metadata": {}}
    assert not may_be_verified("complex_arithmetic", "NaN", entry)
    assert may_be_verified("complex_arithmetic", "1 + 2i", entry)
    assert may_be_verified("letter_jumble", "nan", {"answer": "nan", "metadata": {}})


def test_moves_are_repeated_a_bounded_number_of_times() -> None:
    entry = {"answer": None, "metadata": {}}
    assert may_be_verified("rubiks_cube", "R U2 (R' U)3", entry)
    assert not may_be_verified("rubiks_cube", "R 9999999", entry)


def test_empty_and_endless_answers_are_refused_by_every_family() -> None:
    entry = {"answer": "3", "metadata": {}}
    assert not may_be_verified("gcd", "", entry)
    assert not may_be_verified("gcd", "3" * 10_001, entry)
    assert may_be_verified("gcd", "3", entry)


@pytest.mark.parametrize("text", ["(" * 1500, "[" * 1500 + "]" * 1500, "'" + "a" * 3000 + "'", "-" * 1900 + "1"])
def test_a_literal_is_short_and_shallow(text: str) -> None:
    assert not is_literal(text)


def test_a_cube_is_turned_a_bounded_number_of_times() -> None:
    entry = {"answer": None, "metadata": {}}
    assert may_be_verified("rubiks_cube", "R U R' F2", entry)
    assert not may_be_verified("rubiks_cube", "R99 " * 10, entry)
    assert not may_be_verified("rubiks_cube", "R " * 500, entry)
