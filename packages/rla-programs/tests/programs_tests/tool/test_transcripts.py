"""Transcripts that were written elsewhere: replies, results and calls in one text."""

from __future__ import annotations

import time

import pytest
from rla_programs.tool.transcripts import MOST_READ, calls_told, told_turns

from programs_tests.tool.questions import HERMES, SHORT

CALL = '<tool_call>\n{"name": "code_interpreter", "arguments": {"code": "print(6 * 7)"}}\n</tool_call>'
RESULT = "<tool_response>\n42\n</tool_response>"


def test_a_text_without_results_is_one_reply() -> None:
    for text in ("It is \\boxed{42}.", f"I compute. {CALL}", " padded ", ""):
        assert told_turns(text) == [(text, None)]


def test_replies_and_results_in_turn() -> None:
    assert told_turns(f"First. {CALL}\n{RESULT}\nThen {CALL}{RESULT}So \\boxed{{42}}") == [
        (f"First. {CALL}", "42"),
        (f"Then {CALL}", "42"),
        ("So \\boxed{42}", None),
    ]


def test_results_side_by_side_belong_to_one_reply() -> None:
    assert told_turns(f"{CALL}{CALL}\n{RESULT}\n{RESULT}\nDone.") == [(f"{CALL}{CALL}", "42\n\n42"), ("Done.", None)]


@pytest.mark.parametrize(
    ("between", "behind"),
    [
        ("<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),  # as the template prints it
        ("user\n", "\nassistant\n"),  # decoded without control tokens
        ("\nuser\n", "\nassistant\r\n"),
        ("", ""),
    ],
)
def test_what_templates_print_between_turns_is_left_out(between: str, behind: str) -> None:
    text = f"{CALL}{between}{RESULT}{behind}So it is \\boxed{{42}}<|im_end|>"
    assert told_turns(text) == [(CALL, "42"), ("So it is \\boxed{42}", None)]


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("<think>", "</think>"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ],
)
def test_a_thought_before_a_call_hides_no_result(begin: str, end: str) -> None:
    assert told_turns(f"{begin}a{end}{CALL}{RESULT}so 42") == [(f"{begin}a{end}{CALL}", "42"), ("so 42", None)]


def test_words_that_are_no_roles_stay() -> None:
    assert told_turns(f"{CALL}{RESULT}assistants tell the user")[-1] == ("assistants tell the user", None)


@pytest.mark.parametrize("end", ["", "\n", "<|im_end|>\n<|im_start|>assistant\n", "\nassistant"])
def test_nothing_may_stand_after_the_last_result(end: str) -> None:
    assert told_turns(f"{CALL}{RESULT}{end}") == [(CALL, "42"), ("", None)]


def test_a_result_that_is_not_closed_is_the_end() -> None:
    assert told_turns(f"{CALL}<tool_response>\n42 and") == [(CALL, "42 and"), ("", None)]


def test_a_tag_in_a_program_begins_no_result() -> None:
    own = CALL.replace("6 * 7", "'<tool_response>1</tool_response>'")
    assert told_turns(f"{own}{RESULT}\\boxed{{42}}") == [(own, "42"), ("\\boxed{42}", None)]


def test_a_result_may_print_the_closing_tag() -> None:
    """The answer stands after the last one, so a printed box is none."""
    text = f"{CALL}<tool_response>\n</tool_response>\\boxed{{1}}\n</tool_response>\n\\boxed{{2}}"
    assert told_turns(text)[-1] == ("\\boxed{2}", None)


def test_a_call_that_cannot_be_read_ends_at_its_result() -> None:
    broken = '<tool_call>\n{"name": "code_interpreter", "arguments"'
    assert told_turns(f"{broken}{RESULT}Again. {CALL}{RESULT}\\boxed{{42}}") == [
        (broken, "42"),
        (f"Again. {CALL}", "42"),
        ("\\boxed{42}", None),
    ]


def test_calls_are_counted_in_both_formats() -> None:
    assert calls_told(f"a {CALL}\n{CALL}", None) == 2
    assert calls_told("<tool_call>\n{", HERMES) == 1  # one that cannot be read
    assert calls_told("I compute.\n>>> print(6 * 7)\n>>> print(1)", SHORT) == 2
    assert calls_told("  >>> print(6 * 7)", SHORT) == 1  # the environment reads it without the spaces before it
    assert calls_told(">>> print(6 * 7)", HERMES) == 0
    assert calls_told(CALL, SHORT) == 1
    assert calls_told("= 42", SHORT) == 0


def test_calls_in_the_short_format_with_results() -> None:
    assert told_turns(f">>> print(6 * 7)\n{RESULT}\n= 42") == [(">>> print(6 * 7)", "42"), ("= 42", None)]


@pytest.mark.parametrize(
    "piece", ["<tool_call>", "<tool_response>", "</tool_response>", '<tool_call>["', "<tool_call>[[", CALL, RESULT]
)
def test_hostile_texts_take_linear_time(piece: str) -> None:
    start = time.process_time()
    turns = told_turns(piece * (500_000 // len(piece)))
    assert time.process_time() - start < 3 and turns[-1][1] is None


def test_beyond_the_most_calls_the_answer_still_stands_after_the_last_result() -> None:
    turns = told_turns(f"{CALL}{RESULT}" * (MOST_READ + 5) + "\\boxed{42}")
    assert len(turns) == MOST_READ + 1 and turns[-1] == ("\\boxed{42}", None)
