"""Calls of small models: a line that starts with `>>> `."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rla_programs.tool.calls import MOST_CALLS, TOO_MANY, TOOL, Malformed, ToolCall, Turn
from rla_programs.tool.formats import make_format
from rla_programs.tool.hermes import HermesFormat
from rla_programs.tool.short import EMPTY, ShortFormat

FORMAT = ShortFormat()


def code(text: str) -> ToolCall:
    return ToolCall(name=TOOL, arguments={"code": text})


@pytest.mark.parametrize(
    ("reply", "text", "codes"),
    [
        (">>> print(1)", "", ["print(1)"]),
        ("I compute.\n>>> print(1)", "I compute.", ["print(1)"]),
        (">>> x = 1\nprint(x)\n", "", ["x = 1\nprint(x)\n"]),
        (">>> 1\n>>> 2", "", ["1", "2"]),
        (">>>\nprint(1)", "", ["\nprint(1)"]),
        ("\n\n>>> 1", "\n", ["1"]),
    ],
)
def test_a_call_goes_on_to_the_next_one(reply: str, text: str, codes: list[str]) -> None:
    assert FORMAT.parse(reply) == Turn(text=text, calls=tuple(map(code, codes)))


@pytest.mark.parametrize("reply", ["", "= 42", "a >>> b", " >>> 1", ">>>> 1", ">>>1", "\\boxed{42}\n"])
def test_other_replies_are_text(reply: str) -> None:
    assert FORMAT.parse(reply) == Turn(text=reply)


@pytest.mark.parametrize("reply", [">>>", ">>> ", ">>>\n\n", "text\n>>>  "])
def test_a_call_without_a_program_is_malformed(reply: str) -> None:
    assert FORMAT.parse(reply).calls == (Malformed(reason=EMPTY),)


@given(text=st.text(alphabet="ab\n >", max_size=9), codes=st.lists(st.text(alphabet="ab\n >", max_size=9), max_size=3))
def test_what_is_written_is_read_again_or_refused(text: str, codes: list[str]) -> None:
    calls = tuple(map(code, codes))
    try:
        reply = FORMAT.render(text, calls)
    except ValueError:
        assert any(f"\n{part}".find("\n>>>") >= 0 or not part.strip() for part in (text, *codes))
        return
    assert FORMAT.parse(reply) == Turn(text=text, calls=calls)


def test_a_call_of_another_tool_cannot_be_written() -> None:
    with pytest.raises(ValueError, match=TOOL):
        FORMAT.render("", [ToolCall(name="browser", arguments={"code": "1"})])


def test_no_more_than_a_bounded_number_of_calls_is_read() -> None:
    started = time.process_time()
    *read, last = FORMAT.parse(">>> 1\n" * 200_000).calls
    assert time.process_time() - started < 2
    assert read == [code("1")] * MOST_CALLS
    assert last == Malformed(reason=TOO_MANY)


def test_formats_have_names() -> None:
    assert isinstance(make_format("short"), ShortFormat)
    assert isinstance(make_format("hermes"), HermesFormat)
    assert (FORMAT.schemas, FORMAT.role) == ((), "user")
