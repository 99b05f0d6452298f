"""Calls between `<tool_call>` tags: what the templates render is what is read, and nothing that is read takes long."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rla_programs.tool.calls import MOST_CALLS, TOO_MANY, TOOL, Malformed, ToolCall, Turn
from rla_programs.tool.hermes import UNCLOSED, HermesFormat

FORMAT = HermesFormat()
ONE = '<tool_call>\n{"name": "code_interpreter", "arguments": {"code": "print(1)"}}\n</tool_call>'
PRINTS_ONE = ToolCall(name=TOOL, arguments={"code": "print(1)"})
TEMPLATES = ("qwen2_5", "qwen3", "qwen3_instruct_2507")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def reason(reply: str) -> str:
    """Of the one call, which cannot be read."""
    (call,) = FORMAT.parse(reply).calls
    assert isinstance(call, Malformed)
    return call.reason


def rendered(template: str, text: str, calls: list[ToolCall]) -> str:
    """The assistant's reply in a conversation, by a template as TRL ships it."""
    chat_templates = Path(pytest.importorskip("trl").__file__).parent / "chat_templates"
    from transformers.utils.chat_template_utils import render_jinja_template

    made = [{"type": "function", "function": {"name": c.name, "arguments": dict(c.arguments)}} for c in calls]
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": text, "tool_calls": made}]
    (conversation,), _ = render_jinja_template(
        [messages], chat_template=(chat_templates / f"{template}.jinja").read_text()
    )
    reply = conversation.rpartition("<|im_start|>assistant\n")[2].removesuffix("<|im_end|>\n")
    return str(reply.removeprefix("<think>\n\n</think>\n\n"))  # Qwen3 writes no reasoning before the reply


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("text", ["", "I compute it.", "Two lines,\nthe second empty:\n"])
@pytest.mark.parametrize(
    "arguments",
    [
        [{"code": "print('é', \"</tool_call>\")\n"}],
        [{"code": "1"}, {"code": "2", "more": [1, None, {"deep": True}]}],
        [{}],
    ],
)
def test_calls_are_written_as_the_templates_write_them(template: str, text: str, arguments: list[Any]) -> None:
    calls = [ToolCall(name=TOOL, arguments=each) for each in arguments]
    assert FORMAT.render(text, calls) == rendered(template, text, calls)


@given(
    text=st.text(st.characters(codec="utf-8"), max_size=20),
    calls=st.lists(
        st.builds(
            ToolCall,
            name=st.text(st.characters(codec="utf-8"), min_size=1),
            arguments=st.dictionaries(st.text(st.characters(codec="utf-8")), json_values, max_size=3),
        ),
        max_size=3,
    ),
)
def test_what_is_written_is_read_again(text: str, calls: list[ToolCall]) -> None:
    assert FORMAT.parse(FORMAT.render(text, calls)) == Turn(text=text, calls=tuple(calls))


@given(
    st.lists(st.sampled_from(["<tool_call>", "</tool_call>", ONE, "{", '"', "[", "\\", "\n", "\ud800", "name", ":"]))
)
def test_any_text_is_read(parts: list[str]) -> None:
    FORMAT.parse("".join(parts))


def test_a_reply_without_calls_is_its_text() -> None:
    assert FORMAT.parse("\nIt is </tool_call> 42.\n") == Turn(text="\nIt is </tool_call> 42.\n")


def test_the_text_is_what_stands_around_the_calls() -> None:
    turn = FORMAT.parse(f"Before.\n{ONE}\nBetween.\n{ONE}\nAfter.")
    assert turn == Turn(text="Before.\nBetween.\nAfter.", calls=(PRINTS_ONE, PRINTS_ONE))


def test_a_call_within_the_code_of_a_call_is_code() -> None:
    arguments = {"code": f"print({ONE!r})"}
    reply = FORMAT.render("", [ToolCall(name=TOOL, arguments=arguments)])
    assert reply.count("<tool_call>") == 2
    assert FORMAT.parse(reply).calls == (ToolCall(name=TOOL, arguments=arguments),)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"code": "a = 1\nprint(a)\t# x"}', "a = 1\nprint(a)\t# x"),
        (r'{"code": "re.findall(\d+, \\s, \(, \n)"}', "re.findall(\\d+, \\s, \\(, \n)"),
        (r'{"code": "\u12 \x41 \u0041 \"q\""}', '\\u12 \\x41 A "q"'),
        ('{"code": "print(\'\\d\')\n"}', "print('\\d')\n"),
    ],
)
def test_line_breaks_and_backslashes_that_are_not_escaped_are_read(body: str, code: str) -> None:
    call = ToolCall(name=TOOL, arguments={"code": code})
    assert FORMAT.parse(f'<tool_call>{{"name": "{TOOL}", "arguments": {body}}}</tool_call>{ONE}').calls == (
        call,
        PRINTS_ONE,
    )
    assert FORMAT.parse(f'<tool_call>{{"name": "{TOOL}", "arguments": {json.dumps(body)}}}</tool_call>').calls == (
        call,
    )


@pytest.mark.parametrize("arguments", ['""', '" "', "null", "{}", '"{}"'])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    empty = (ToolCall(name="x", arguments={}),)
    assert FORMAT.parse(f'<tool_call>{{"name": "x", "arguments": {arguments}}}</tool_call>').calls == empty
    assert FORMAT.parse('<tool_call>{"name": "x"}</tool_call>').calls == empty


def test_arguments_may_be_a_json_text() -> None:
    body = json.dumps({"name": TOOL, "arguments": json.dumps({"code": "print(1)"})})
    assert FORMAT.parse(f"<tool_call>{body}</tool_call>").calls == (PRINTS_ONE,)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "not valid JSON (it is empty)"),
        ("print(1)", "not valid JSON (Expecting value at character 1 of the call)"),
        ('{"name": "x", "arguments": {}} and more', "more text at character 32"),
        ("[1]", "not a JSON object"),
        ('{"arguments": {"code": "1"}}', 'no "name"'),
        ('{"name": 1, "arguments": {"code": "1"}}', 'no "name"'),
        ('{"name": "", "arguments": {"code": "1"}}', 'no "name"'),
        ('{"name": "x", "arguments": {"code": "a\\', "Unterminated string"),
        ('{"name": "x", "arguments": ["1"]}', 'no "arguments"'),
        ('{"name": "x", "arguments": "print(1)"}', 'no "arguments"'),
        ('{"name": "x", "arguments": {"code": "\\ud800"}}', "half of a surrogate pair"),
        ('{"name": "x", "arguments": ' + "[" * 100_000, "nested too deeply"),
        ('{"name": "x", "arguments": {"code": ' + "[" * 99 + "]" * 99 + "}}", "nested too deeply"),
        ('{"name": "x", "arguments": {"code": ' + "1" * 50_000 + "}}", "a number is too long"),
    ],
)
def test_a_call_that_cannot_be_read_says_why(body: str, said: str) -> None:
    assert said in reason(f"<tool_call>\n{body}\n</tool_call>")


def test_the_calls_after_a_bad_one_are_read() -> None:
    bad, good = FORMAT.parse(f"<tool_call>oops</tool_call>{ONE}").calls
    assert isinstance(bad, Malformed)
    assert good == PRINTS_ONE


@pytest.mark.parametrize("reply", ["<tool_call>", ONE.removesuffix("</tool_call>"), "I use <tool_call> here."])
def test_a_call_that_is_not_closed_is_malformed(reply: str) -> None:
    assert reason(reply) == UNCLOSED


def test_no_more_than_a_bounded_number_of_calls_is_read() -> None:
    *read, last = FORMAT.parse(ONE * 10_000).calls
    assert read == [PRINTS_ONE] * MOST_CALLS
    assert last == Malformed(reason=TOO_MANY)


@pytest.mark.parametrize(
    "reply",
    [
        "<tool_call>" * 200_000,
        '<tool_call>{"a":"' * 100_000,
        "<tool_call>{</tool_call>" * 100_000,
        "<tool_call>" + "[" * 1_000_000,
        "<tool_call>" + " " * 2_000_000,
        '<tool_call>{"a":' * 64 + " " * 1_000_000 + "</tool_call>" * 64,
        "<tool_call>" + '"' + "\\" * 1_000_000,
        '<tool_call>{"a":"\\d' * 50_000,
        '<tool_call>{"a":"' + "\\d" * 500_000,
        '<tool_call>{"a": "\\d", "b": ' + "[" * 500_000,
    ],
)
def test_megabytes_are_read_at_once(reply: str) -> None:
    started = time.process_time()
    FORMAT.parse(reply)
    assert time.process_time() - started < 2
