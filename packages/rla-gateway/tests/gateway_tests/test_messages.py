"""Requests that are not OpenAI's are refused with a reason; replies become OpenAI's answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rla_gateway.messages import BadRequest, ChatAnswer, answer_of, read_chat
from rla_programs.tool.formats import make_format

from rla.agents import NO_ACTION
from tests.unit.builders import step

ASKED = [{"role": "user", "content": "q"}]
FORCED = {"type": "function", "function": {"name": "add"}}
NESTED: Any = []
for _ in range(80):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not JSON"),
        (b'{"messages": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (rb'{"messages": [{"role": "user", "content": "\ud800"}]}', "UTF-8"),
        (b"[]", "object"),
        (json.dumps({"messages": ASKED, "metadata": NESTED}).encode(), "nested"),
        (b"{}", "messages"),
        (b'{"messages": []}', "messages"),
        (json.dumps({"messages": ASKED * 5000}).encode(), "messages"),
        (json.dumps({"messages": ASKED, "n": 2}).encode(), "n must be 1"),
        (json.dumps({"messages": ASKED, "tools": [{"type": "function"}]}).encode(), "tools"),
        (json.dumps({"messages": ASKED, "tool_choice": "always"}).encode(), "tool_choice must be one of auto"),
        (json.dumps({"messages": ASKED, "tool_choice": FORCED}).encode(), "a function cannot be forced"),
        (b'{"messages": [1]}', "role"),
        (b'{"messages": [{"role": "robot", "content": ""}]}', "role"),
        (b'{"messages": [{"role": "user", "content": 5}]}', "content"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}', "images"),
        (b'{"messages": [{"role": "assistant", "tool_calls": {"a": 1}}]}', "tool_calls"),
        (
            b'{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]}]}',
            "JSON",
        ),
    ],
)
def test_what_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason) as refused:
        read_chat(body)
    assert refused.value.status == 400


@pytest.mark.parametrize(("choice", "kept"), [(None, 1), ("auto", 1), ("required", 1), ("none", 0)])
def test_tool_choice_shows_the_tools_or_none(choice: str | None, kept: int) -> None:
    found = read_chat(json.dumps({"messages": ASKED, "tools": [FORCED], "tool_choice": choice}).encode())
    assert found.tools == (FORCED,) * kept


def test_parts_of_text_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    read = read_chat(json.dumps({"messages": [{"role": "developer", "content": parts}]}).encode())
    assert [(one.role, one.text) for one in read.messages] == [("system", "ab")]


def answer(action: str, *, tools: bool, truncated: bool = False) -> ChatAnswer:
    done = step(start=10, end=14, truncated=truncated)
    return answer_of(action, done, name="e-1", calls=make_format("hermes") if tools else None)


CALL = 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def test_calls_of_a_reply() -> None:
    (choice,) = answer(CALL, tools=True).body["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "I add.")
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": '{"a": 1}'}


@pytest.mark.parametrize(
    ("action", "tools", "content", "understood"),
    [
        (CALL, False, CALL, True),
        ("<tool_call>\n{]\n</tool_call>", True, "<tool_call>\n{]\n</tool_call>", False),
        (NO_ACTION, True, "", True),
        ("4", True, "4", True),
    ],
)
def test_replies_without_calls(action: str, tools: bool, content: str, understood: bool) -> None:
    found = answer(action, tools=tools)
    (choice,) = found.body["choices"]
    assert (choice["message"], choice["finish_reason"]) == ({"role": "assistant", "content": content}, "stop")
    assert found.understood == understood


def test_the_counts_are_those_of_the_tokens() -> None:
    found = answer("4", tools=False, truncated=True).body
    assert found["usage"] == {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    assert found["choices"][0]["finish_reason"] == "length"
