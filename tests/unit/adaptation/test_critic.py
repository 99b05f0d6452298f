"""The critique counts reasons; the judge's text is data and stays data."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rla.adaptation.drafting import MAX_REASON, frequent_reasons, sentences


def test_the_most_frequent_reasons_come_first_with_their_counts() -> None:
    texts = [
        "it does not help score -1",
        "it has been there score -1",
        "it has been there score -1",
        "nothing happens score -1",
    ]
    assert frequent_reasons(texts, reasons=2) == "it has been there (2 of 4); it does not help (1 of 4)"


def test_a_boxed_verdict_is_no_part_of_the_reason() -> None:
    assert frequent_reasons(["The drawer was open already.\nSo this is wasted. \\boxed{-1}"]) == (
        "The drawer was open already (1 of 1); So this is wasted (1 of 1)"
    )
    assert sentences("Score: -1") == []


def test_reasons_that_differ_in_numbers_or_case_count_as_one() -> None:
    texts = ["Cabinet 3 was searched before.", "cabinet 12 was searched before."]
    assert frequent_reasons(texts) == "Cabinet 3 was searched before (2 of 2)"


def test_a_text_counts_a_reason_once_and_decimals_do_not_end_a_sentence() -> None:
    assert (
        frequent_reasons(["It waits. It waits. It waits 1.5 turns."])
        == "It waits (1 of 1); It waits 1.5 turns (1 of 1)"
    )


def test_no_reason_gives_an_empty_critique() -> None:
    assert frequent_reasons([]) == ""
    assert frequent_reasons(["", "-1", "\\boxed{-1}"]) == ""


@given(st.text(max_size=400))
def test_whatever_the_judge_wrote_the_critique_is_one_short_printable_line(text: str) -> None:
    line = frequent_reasons([text], reasons=3)
    assert line.isprintable()
    assert len(line) <= 3 * (MAX_REASON + len(" (1 of 1); "))
