"""Calls of a tool in a log of Inspect: tool calls of the assistant, and one tool message with their results.

    assistant   the reply as it was sampled, calls included; its tool calls have the program as the argument `code`
    tool        the results of all calls of the reply, as observed; `ended` in its metadata says how each call ended

A call that could not be parsed is named `unreadable` and has the fault as its parse error. All of this is text of a
model, so control characters become blanks.
"""

from __future__ import annotations

import json
from typing import Any

from rla.text import printable
from rla_study.showing.episodes import ShownStep


def inspect_calls(episode: str, step: ShownStep) -> list[Any] | None:
    """The tool calls of a reply, whose text contains them as well. The viewer folds them."""
    from inspect_ai.tool import ToolCall

    return [
        ToolCall(
            id=f"{episode}-{step.index}-call-{number}",
            function=printable(call.name) or "unreadable",
            arguments={printable(name): _shown_argument(value) for name, value in call.arguments.items()},
            parse_error=printable(call.fault) or None,
        )
        for number, call in enumerate(step.calls)
    ] or None


def _shown_argument(value: Any) -> str:
    """A program as it is; any other argument that a model wrote as JSON."""
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def told_result_of(episode: str, step: ShownStep, text: str) -> Any:
    """The results of all calls of a reply in one message, the first call's: they were observed as one text."""
    from inspect_ai.model import ChatMessageTool

    first = inspect_calls(episode, step) or []
    return ChatMessageTool(
        id=f"{episode}-{step.index}-told",
        content=printable(text),
        tool_call_id=first[0].id,
        function=first[0].function,
        metadata={"ended": ", ".join(printable(call.status) for call in step.calls)},
    )
