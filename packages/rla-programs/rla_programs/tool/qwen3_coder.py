"""Calls as the chat templates of Qwen3-Coder and Qwen3.5 render them, in tags instead of JSON.

    <tool_call>
    <function=code_interpreter>
    <parameter=code>
    print(6 * 7)
    </parameter>
    </function>
    </tool_call>

A value is the text between the line ends next to its tags, and is JSON unless the schema wants a string. It ends at the
closing tag that is followed by another parameter or the end of the function, so a closing tag inside a program belongs
to the program. A value with a line that begins another parameter is refused, because its own end may be missing. The
outer tags are optional, because the models often leave them out. At most `MOST_CALLS` calls are parsed, each in one
pass over the reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rla.text import after_thinking
from rla_programs.execution.nesting import too_deep
from rla_programs.tool.calls import SCHEMA, Malformed, ToolCall, Turn, turn_of

OPEN, CLOSE, FUNCTION, FUNCTION_END = "<tool_call>", "</tool_call>", "<function=", "</function>"
START = re.compile(rf"{OPEN}\s*+(?:{FUNCTION})?|{FUNCTION}")
NAME = re.compile(r"\s*([^<>\s]{1,200})\s*>")
PARAMETER = re.compile(r"\s*<parameter=\s*([^<>\s]{1,200})\s*>(?:\r?\n)?")
INNER = re.compile(r"^<parameter=[^<>\s]{1,200}>$", re.MULTILINE)  # the end of the parameter around it may be missing
VALUE_END = re.compile(rf"\n?</parameter>\s*(?=<parameter=|{FUNCTION_END})")
END = re.compile(rf"\s*{FUNCTION_END}(?:\s*{CLOSE})?")
SHAPE = f"write {FUNCTION}NAME>, <parameter=NAME>, the value, </parameter> and {FUNCTION_END} between the tags"
UNCLOSED = f"The call is not closed: write {FUNCTION_END} and {CLOSE} after its parameters."


class Qwen3CoderFormat:
    """`CallFormat` of models whose chat template writes calls in tags."""

    schemas: tuple[Mapping[str, Any], ...] = (SCHEMA,)
    role = "tool"

    def parse(self, reply: str) -> Turn:
        return turn_of(after_thinking(reply), START, _tagged_call, gap=2)

    def render(self, text: str, calls: Sequence[ToolCall]) -> str:
        """As the templates do. Raises ValueError for a program that `parse` would not give back."""
        written = "\n".join(map(_in_tags, calls))
        reply = f"{text}\n\n{written}" if text and calls else text + written
        if self.parse(reply) != Turn(text=text, calls=tuple(calls)):
            raise ValueError("a text or a program holds the tags of a call")
        return reply


def _in_tags(call: ToolCall) -> str:
    values = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in call.arguments.items()
    }
    lines = [f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in values.items()]
    return f"{OPEN}\n{FUNCTION}{call.name}>\n{''.join(lines)}{FUNCTION_END}\n{CLOSE}"


def _tagged_call(reply: str, start: re.Match[str]) -> tuple[ToolCall | Malformed, int]:
    """The call that begins with `start`, and the position after it."""
    if not start[0].endswith(FUNCTION):
        return _failed_call_in_tags(reply, start.end(), f"The call names no function: {SHAPE}.")
    name = NAME.match(reply, start.end())
    if name is None:
        return _failed_call_in_tags(reply, start.end(), f"The call has no readable name: {SHAPE}.")
    arguments, at = dict[str, Any](), name.end()
    for key, value, end in parameters(reply, at):
        if value is not None and INNER.search(value):
            return _failed_call_in_tags(reply, end, f"The parameter {key} is not closed: write </parameter> behind it.")
        if value is None:
            return _failed_call_in_tags(reply, end, UNCLOSED)
        if key in arguments:
            return _failed_call_in_tags(reply, end, f"The call has the parameter {key} twice: write it once.")
        arguments[key], at = value_of_type(value, name[1], key), end
    closed = END.match(reply, at)
    if closed is None:
        return _failed_call_in_tags(reply, at, UNCLOSED)
    if any(map(too_deep, arguments.values())):
        return Malformed(reason="A parameter is nested too deeply: write it flat."), closed.end()
    if any("\ud800" <= sign <= "\udfff" for sign in reply[start.start() : closed.end()]):
        return Malformed(reason="The call holds half of a surrogate pair: write the character itself."), closed.end()
    return ToolCall(name=name[1], arguments=arguments), closed.end()


def parameters(reply: str, at: int) -> Iterator[tuple[str, str | None, int]]:
    """Name, value and end of each parameter; the value is None if it never ends."""
    while opened := PARAMETER.match(reply, at):
        ended = VALUE_END.search(reply, opened.end())
        at = ended.end() if ended else len(reply)
        value = reply[opened.end() : ended.start()] if ended else None
        if value is not None and opened[0].endswith("\r\n"):
            value = value.removesuffix("\r")
        yield opened[1], value, at


def value_of_type(value: str, function: str, key: str) -> Any:
    """The value in the type of the schema; the text itself if it is not JSON."""
    (schema,) = (one["function"] for one in Qwen3CoderFormat.schemas)
    wanted = schema["parameters"]["properties"].get(key, {}) if schema["name"] == function else {}
    if wanted.get("type", "string") == "string":
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _failed_call_in_tags(reply: str, at: int, reason: str) -> tuple[Malformed, int]:
    """A call that could not be parsed, up to the next closing tag."""
    closing = reply.find(CLOSE, at)
    return Malformed(reason=reason), len(reply) if closing < 0 else closing + len(CLOSE)
