"""Final answers, numbers and letters: golden cases of the published reading among them."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from rla_programs.tool.answer_reading import final_answer, letter_in, number_in, plain_latex

PUBLISHED = [  # reply, what the published code reads as its answer
    ("\\boxed{42}", "42"),
    ("\\boxed{ 42 }", " 42 "),  # not "42"
    ("\\boxed{042}", "042"),
    ("\\boxed{1} or \\boxed{2}", "2"),
    ("\\boxed{42", None),
    ("\\boxed{1} then \\boxed{2", None),  # the last one decides, closed or not
    ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
    ("\\boxed{42}" + "." * 90, "42"),
    ("\\boxed{42}" + "." * 91, None),  # the box has to fit into the last 100 characters
    ("= 42", None),
    ("", None),
]
CHECKED = [
    ("\\boxed{1} then \\boxed{2", "1"),  # of the closed boxes the one that begins last
    ("\\boxed{\\boxed{3}}", "3"),
    ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
    ("\\boxed{\\left\\{1\\right.} so", "\\left\\{1\\right."),  # an escaped brace is a character
    ("\\boxed{42}" + "." * 500, "42"),
    ("so\n= 41\n= 42\nend", "42"),
    ("= 42", "42"),
    ("x = 42", None),  # the line begins with something else
    ("= 41\n\\boxed{42}", "42"),  # a box counts first
    ("no answer", None),
]


@pytest.mark.parametrize(("reply", "answer"), PUBLISHED)
def test_the_published_window(reply: str, answer: str | None) -> None:
    assert final_answer(reply, window=100) == answer


@pytest.mark.parametrize(("reply", "answer"), CHECKED)
def test_the_last_box_or_the_short_line(reply: str, answer: str | None) -> None:
    assert final_answer(reply) == answer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", Fraction(42)),
        ("042", Fraction(42)),
        ("-1,234.50", Fraction(-2469, 2)),
        ("3/4", Fraction(3, 4)),
        ("-\\frac{3}{4}", Fraction(-3, 4)),
        ("\\dfrac34", Fraction(3, 4)),
        ("$1{,}000$", Fraction(1000)),
        ("1e3", Fraction(1000)),
        ("2.5E-1", Fraction(1, 4)),
        ("\u22125", Fraction(-5)),
        ("5.", Fraction(5)),
        ("1/0", None),
        ("12,34", None),
        ("x", None),
        ("", None),
        ("1e1001", None),
        ("1e" + "9" * 9, None),
        ("9" * 1001, None),
        ("\u0663", None),  # a digit, but none of ours
        ("1_000", None),
        ("**42**", Fraction(42)),
        ("2**3", None),  # a power, and not 23
        ("3~4", None),
    ],
)
def test_numbers(text: str, number: Fraction | None) -> None:
    assert number_in(text) == number


@pytest.mark.parametrize(
    ("text", "letter"),
    [("B", "B"), ("(b).", "B"), ("\\text{C}", "C"), ("**D**", "D"), ("\\mathrm{(A)}", "A"), ("AB", None), ("", None)],
)
def test_letters(text: str, letter: str | None) -> None:
    assert letter_in(text) == letter


def test_what_only_typesets_is_left_out() -> None:
    assert plain_latex("$\\left( \\dfrac{1}{2},\\, \\text{ cm} \\right)$.") == "(1/2,cm)"


@pytest.mark.parametrize(
    "hostile",
    [
        "\\boxed{" * 60_000,
        "{" * 400_000,
        "\\boxed" + " " * 400_000,
        "\n= " * 130_000,
        "\\" * 400_000,
        "\\text{" * 60_000,
    ],
)
def test_hostile_replies_take_linear_time(hostile: str) -> None:
    begun = time.process_time()
    assert final_answer(hostile) in (None, "")
    plain_latex(hostile)
    assert time.process_time() - begun < 3


@pytest.mark.parametrize("text", [r"3\frac{1}{2}", r"\frac{1}{2}3", "1 2", "1\n2\n3", r"1\,2", r"2 \frac12"])
def test_numbers_side_by_side_are_not_one_number(text: str) -> None:
    assert number_in(text) is None


def test_groups_of_three_are() -> None:
    assert number_in(r"10\,000") == 10_000
