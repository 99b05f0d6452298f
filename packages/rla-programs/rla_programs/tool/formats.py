"""The call formats by their names in `env.own.format`.

| format | a call | results are in |
|---|---|---|
| `hermes` | JSON between `<tool_call>` tags | a turn of the role `tool`, by the chat template |
| `qwen3_coder` | `<function=...>` and `<parameter=...>` between `<tool_call>` tags | the same |
| `short` | a line that starts with `>>> ` | a turn of the user |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rla_programs.tool.calls import CallFormat, ToolCall
from rla_programs.tool.hermes import HermesFormat
from rla_programs.tool.qwen3_coder import Qwen3CoderFormat
from rla_programs.tool.short import ShortFormat

FORMATS: Mapping[str, Callable[[], CallFormat]] = {
    "hermes": HermesFormat,
    "qwen3_coder": Qwen3CoderFormat,
    "short": ShortFormat,
}


def make_format(name: str) -> CallFormat:
    """The format with that name; the parameters allow no other name."""
    return FORMATS[name]()


def format_that_reads(reply: str, call: ToolCall) -> str | None:
    """The name of the format that finds exactly this call in a reply; None if no format does."""
    return next((name for name, made in FORMATS.items() if made().parse(reply).calls == (call,)), None)
