"""Calls in tags: what the templates render is what is read, and nothing that is read takes long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rla_programs.tool.calls import MOST_CALLS, TOO_MANY, TOOL, Malformed, ToolCall, Turn
from rla_programs.tool.formats import FORMATS, format_that_reads
from rla_programs.tool.qwen3_coder import UNCLOSED, Qwen3CoderFormat, value_of_type

FORMAT = Qwen3CoderFormat()
ONE = "<tool_call>\n<function=code_interpreter>\n<parameter=code>\nprint(1)\n</parameter>\n</function>\n</tool_call>"
PRINTS_ONE = ToolCall(name=TOOL, arguments={"code": "print(1)"})


def calling(*codes: str) -> list[ToolCall]:
    return [ToolCall(name=TOOL, arguments={"code": code}) for code in codes]


def rendered(template: str, text: str, calls: list[ToolCall]) -> str:
    """The assistant's reply in a conversation, by a template as TRL ships it."""
    folder = Path(pytest.importorskip("trl").__file__).parent / "chat_templates"
    from transformers.utils.chat_template_utils import render_jinja_template

    made = [{"type": "function", "function": {"name": c.name, "arguments": dict(c.arguments)}} for c in calls]
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": text, "tool_calls": made}]
    (conversation,), _ = render_jinja_template([messages], chat_template=(folder / f"{template}.jinja").read_text())
    reply = conversation.rpartition("<|im_start|>assistant\n")[2].removesuffix("<|im_end|>\n")
    return str(reply.removeprefix("<think>\n\n</think>\n\n"))


@pytest.mark.parametrize("template", ["qwen3_5_think", "qwen3_5_nothink", "qwen3_6"])
@pytest.mark.parametrize("text", ["", "I compute it."])
@pytest.mark.parametrize("codes", [["print('é')\n\nprint(2)"], ["1", "2"], ['if a < b > "c":\n    pass\n']])
def test_calls_are_written_as_the_templates_write_them(template: str, text: str, codes: list[str]) -> None:
    assert FORMAT.render(text, calling(*codes)) == rendered(template, text, calling(*codes))


@given(text=st.text(st.characters(codec="utf-8"), max_size=20), codes=st.lists(st.text(st.characters(codec="utf-8"))))
def test_what_is_written_is_read_again(text: str, codes: list[str]) -> None:
    calls = calling(*codes[:3])
    assert FORMAT.parse(FORMAT.render(text, calls)) == Turn(text=text, calls=tuple(calls))


@given(st.lists(st.sampled_from([*ONE.splitlines(), ONE, "\n", "<function=", "<parameter=", ">", "\ud800", "x"])))
def test_any_text_is_read(parts: list[str]) -> None:
    FORMAT.parse("".join(parts))


@pytest.mark.parametrize(
    "reply",
    [
        ONE,
        ONE.removeprefix("<tool_call>\n"),
        ONE.removesuffix("\n</tool_call>"),
        ONE.replace("\n", ""),
        ONE.replace("\n", "\r\n"),
        f"<think>{ONE}</think>{ONE}",
    ],
)
def test_a_call_is_read_however_its_tags_stand(reply: str) -> None:
    assert FORMAT.parse(reply).calls == (PRINTS_ONE,)


def test_tags_in_a_program_are_text_of_it() -> None:
    code = "print('</parameter>', '<tool_call>', '</tool_call>')"
    assert FORMAT.parse(FORMAT.render("", calling(code))).calls == tuple(calling(code))


def test_a_program_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(ValueError, match="tags of a call"):
        FORMAT.render("", calling("print('</parameter></function>')"))


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("<tool_call>", "names no function"),
        ('<tool_call>{"name": "x"}</tool_call>', "names no function"),
        ("<tool_call><function=></function></tool_call>", "no readable name"),
        ("<tool_call><function=x>", UNCLOSED),
        (ONE.partition("</parameter>")[0], UNCLOSED),
        (ONE.partition("</function>")[0], UNCLOSED),
        (ONE.replace("</function>", "and more</function>"), UNCLOSED),
        (ONE.replace("<parameter", "<parameter=code>\n2\n</parameter>\n<parameter"), "twice"),
        (ONE.replace("1", "\ud800"), "surrogate"),
        (ONE.replace("<parameter", "<parameter=a>\n2\n<parameter"), "parameter a is not closed"),
    ],
)
def test_a_call_that_cannot_be_read_says_why(reply: str, said: str) -> None:
    (call,) = FORMAT.parse(reply).calls
    assert isinstance(call, Malformed) and said in call.reason


def test_a_call_without_parameters_is_one() -> None:
    assert FORMAT.parse("<function=x></function>").calls == (ToolCall(name="x", arguments={}),)


def test_the_text_is_what_stands_around_the_calls() -> None:
    assert FORMAT.parse(f"Before.\n\n{ONE}\n{ONE}\nAfter.") == Turn(text="Before.\nAfter.", calls=(PRINTS_ONE,) * 2)


def test_the_calls_after_a_bad_one_are_read() -> None:
    bad, good = FORMAT.parse(f"<tool_call>oops</tool_call>{ONE}").calls
    assert isinstance(bad, Malformed) and good == PRINTS_ONE


def test_values_that_the_schema_calls_strings_are_text() -> None:
    assert value_of_type("12", TOOL, "code") == value_of_type("12", TOOL, "other") == "12"


def test_no_more_than_a_bounded_number_of_calls_is_read() -> None:
    *read, last = FORMAT.parse(ONE * 10_000).calls
    assert read == [PRINTS_ONE] * MOST_CALLS and last == Malformed(reason=TOO_MANY)


@pytest.mark.parametrize(
    "part",
    ["<tool_call>", "<function=x>", "<function=x><parameter=a>", "<parameter=a>", "<tool_call> ", ONE[:-50], " "],
)
def test_megabytes_are_read_at_once(part: str) -> None:
    started = time.process_time()
    FORMAT.parse("<tool_call><function=x>" + part * (1_000_000 // len(part)))
    assert time.process_time() - started < 2


@pytest.mark.parametrize("name", FORMATS)
def test_the_format_of_a_call_is_told(name: str) -> None:
    written: Any = FORMATS[name]().render("", calling("print(1)"))
    assert format_that_reads(written, PRINTS_ONE) == name
