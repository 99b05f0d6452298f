"""Mathematics: which answers are the truth, by a table, and that comparing is symmetric and bounded."""

from __future__ import annotations

import time

import pytest
from rla_programs.tool.mathematics.comparing import is_readable, same_mathematics

from programs_tests.tool.math_verdicts import VERDICTS

ROWS = [(group, *pair) for group, pairs in VERDICTS.items() for pair in pairs]


def test_the_table_is_large_and_has_no_row_twice() -> None:
    assert len(ROWS) >= 300 and len({(truth, answer) for _, truth, answer, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("group", "truth", "answer", "right"), ROWS)
def test_an_answer_is_right_if_it_is_the_truth_by_value(group: str, truth: str, answer: str, right: bool) -> None:
    begun = time.process_time()
    assert same_mathematics(truth, answer) is right
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("truth", sorted({truth for _, truth, _, _ in ROWS}))
def test_every_truth_is_its_own_answer(truth: str) -> None:
    assert same_mathematics(truth, truth)


@pytest.mark.parametrize("truth", [r"1, 2, \ldots, n", r"\int_0^1 f(x) dx", "9^9^9^9", r"\{x | x > 2\}", "1/0"])
def test_truths_that_are_matched_as_text_alone_are_told(truth: str) -> None:
    assert not is_readable(truth)


@pytest.mark.parametrize("truth", ["42", r"\frac{1}{2}", "x^2+1", "(1, 2)", "East", r"[0, \infty)", "x = 3", "12:00"])
def test_truths_that_are_compared_by_value(truth: str) -> None:
    assert is_readable(truth)
