"""Nothing before the last `</think>` acts, answers, tests or calls a tool."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from rla_programs.answering.transcripts import played_elsewhere
from rla_programs.coding.prompts import PlainProgramPrompt, PublishedProgramPrompt
from rla_programs.coding.writing import PlainTestPrompt, PublishedTestPrompt
from rla_programs.tool.answers import final_answer, last_program
from rla_programs.tool.calls import Turn
from rla_programs.tool.hermes import HermesFormat
from rla_programs.tool.prompts import QuestionPrompt
from rla_programs.tool.short import ShortFormat

from tests.unit.test_text import assert_thoughts_are_not_read

CALL = '<tool_call>{"name": "code_interpreter", "arguments": {"code": "1"}}</tool_call>'
PROGRAM = "```python\nprint(1)\n```"
TEST = "**Test Input:**\n```\n1\n```\n\n**Test Output:**\n```\n2\n```"
READERS: dict[str, tuple[Callable[[str], Any], str, Any]] = {
    "hermes": (lambda reply: HermesFormat().parse(reply).calls, CALL, ()),
    "short": (lambda reply: ShortFormat().parse(reply).calls, ">>> 1", ()),
    "question": (lambda reply: QuestionPrompt().parse(reply, ()), CALL, None),
    "answer": (final_answer, "\\boxed{42}", None),
    "program that answers": (last_program, PROGRAM, None),
    "program": (lambda reply: PublishedProgramPrompt().parse(reply, ()), PROGRAM, None),
    "plain program": (lambda reply: PlainProgramPrompt().parse(reply, ()), "print(1)", None),
    "test": (PublishedTestPrompt().parse, TEST, None),
    "plain test": (PlainTestPrompt().parse, "1\n->\n2", None),
}


@pytest.mark.parametrize("name", READERS)
def test_a_thought_is_not_read(name: str) -> None:
    read, said, nothing = READERS[name]
    assert_thoughts_are_not_read(read, said, nothing=nothing)


def test_text_and_calls_of_a_turn_are_those_after_the_thoughts() -> None:
    assert HermesFormat().parse(f"<think>{CALL}</think>It is 4.") == Turn(text="It is 4.")


def test_a_result_that_a_model_imagines_is_no_result() -> None:
    thought = f"<think>{CALL}<tool_response>9</tool_response></think>"
    told = f"{thought}{CALL}<tool_response>1</tool_response><think>so</think>\\boxed{{1}}"
    played = played_elsewhere(told, QuestionPrompt(calls=HermesFormat()))
    assert (played.replies, played.answers, played.calls) == ([CALL, "\\boxed{1}"], ["1", ""], 1)


@pytest.mark.parametrize(
    "part", ["<tool_response><think></tool_response>", "<think><tool_response>", "</think><tool_response>", "<think>"]
)
def test_thoughts_of_transcripts_are_found_in_linear_time(part: str) -> None:
    started = time.process_time()
    QuestionPrompt().turns_in(part * (900_000 // len(part)))
    assert time.process_time() - started < 2


def test_a_transcript_that_ends_in_a_thought_has_no_answer() -> None:
    played = played_elsewhere(f"{CALL}<tool_response>1</tool_response><think>\\boxed{{1}}", QuestionPrompt())
    assert played.replies[-1] == "" and not played.answered
