"""Calls as Hermes models write them, and as the chat templates of Qwen2.5 and Qwen3 render them.

    <tool_call>
    {"name": "code_interpreter", "arguments": {"code": "print(6 * 7)"}}
    </tool_call>

A call ends at the end of its JSON, followed by the closing tag, so a tag inside the code belongs to the code. Line
breaks and backslashes that a model forgot to escape are accepted (`rla_bridges.lenient_json`). A call whose body is not
JSON ends at the next closing tag, or with the reply. At most `MOST_CALLS` calls are parsed, each in one pass over the
reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rla_bridges.lenient_json import lenient_decode, lenient_loads

from rla.text import after_thinking
from rla_programs.execution.nesting import too_deep
from rla_programs.tool.calls import SCHEMA, Malformed, ToolCall, Turn, turn_of

OPEN, CLOSE = "<tool_call>", "</tool_call>"
START = re.compile(OPEN)
SPACE = re.compile(r"[ \t\r\n]*")
SHAPE = 'write {"name": ..., "arguments": {...}} between the tags'
UNCLOSED = f"The call is not closed: write {CLOSE} after its JSON object."


class HermesFormat:
    """`CallFormat` of models whose chat template supports tools."""

    schemas: tuple[Mapping[str, Any], ...] = (SCHEMA,)
    role = "tool"

    def parse(self, reply: str) -> Turn:
        return turn_of(after_thinking(reply), START, lambda reply, start: hermes_call(reply, start.end()), gap=1)

    def render(self, text: str, calls: Sequence[ToolCall]) -> str:
        """As the templates do, except that a name with quotation marks is escaped."""
        return "\n".join(([text] if text else []) + [written(call) for call in calls])


def written(call: ToolCall) -> str:
    name, arguments = (json.dumps(value, ensure_ascii=False) for value in (call.name, dict(call.arguments)))
    return f'{OPEN}\n{{"name": {name}, "arguments": {arguments}}}\n{CLOSE}'


def hermes_call(reply: str, start: int) -> tuple[ToolCall | Malformed, int]:
    """The call whose body begins at `start`, and the position after it."""
    closing, body = reply.find(CLOSE, start), skipped(reply, start)
    try:
        value, end = lenient_decode(reply, body)
    except json.JSONDecodeError as error:
        return _failed_call(reply, start, closing, f"{error.msg} at character {error.pos - body + 1} of the call")
    except ValueError:  # an integer of thousands of digits
        return _failed_call(reply, start, closing, "a number is too long")
    except RecursionError:
        return _failed_call(reply, start, closing, "it is nested too deeply")
    end = skipped(reply, end)
    if reply.startswith(CLOSE, end):
        return _call_of(value), end + len(CLOSE)
    return _failed_call(reply, start, closing, f"more text at character {end - body + 1} of the call")


def _failed_call(reply: str, start: int, closing: int, fault: str) -> tuple[Malformed, int]:
    """A body that could not be parsed, up to the next closing tag."""
    if closing < 0:
        return Malformed(reason=UNCLOSED), len(reply)
    if not reply[start:closing].strip():
        fault = "it is empty"
    return Malformed(reason=f"The call is not valid JSON ({fault}): {SHAPE}."), closing + len(CLOSE)


def skipped(text: str, start: int) -> int:
    found = SPACE.match(text, start)
    assert found is not None  # the pattern matches the empty text
    return found.end()


def _call_of(value: Any) -> ToolCall | Malformed:
    """A decoded body as a call."""
    if not isinstance(value, dict):
        return Malformed(reason=f"The call is not a JSON object: {SHAPE}.")
    name, arguments = value.get("name"), arguments_given(value.get("arguments"))
    if not isinstance(name, str) or not name:
        return Malformed(reason=f'The call has no "name" that is a text: {SHAPE}.')
    if not isinstance(arguments, dict):
        return Malformed(reason=f'The call has no "arguments" that are a JSON object: {SHAPE}.')
    if too_deep(value) or too_deep(arguments):
        return Malformed(reason="The call is not valid JSON (it is nested too deeply): write the arguments flat.")
    if not _utf8_can_write(name, arguments):
        return Malformed(reason="The call holds half of a surrogate pair: write the character itself.")
    return ToolCall(name=name, arguments=arguments)


def arguments_given(given: Any) -> Any:
    """The arguments of a call, which may be JSON text, as in OpenAI's protocol. Missing or empty ones are an empty
    object; None for a text that is not JSON.
    """
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    try:
        return lenient_loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return None


def _utf8_can_write(name: str, arguments: dict[str, Any]) -> bool:
    """Whether all texts of a call can be encoded as UTF-8; its nesting is limited already."""
    try:
        f"{name}{json.dumps(arguments, ensure_ascii=False)}".encode()
    except UnicodeEncodeError:
        return False
    return True
