"""Conversations as rows of a shard: messages, with tool calls as JSON text.

A column of structs has the union of all keys: a call with `{"code": ...}` would come back with a null for every
argument of any other call. So calls and schemas are stored as text, and become objects only for a chat template.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.reading import read_rows
from rla.store.records import columns, content_id

SCHEMA = Path(__file__).with_name("conversations.schema.json")
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """`tool_calls`: JSON text of a list of {"type": "function", "function": {"name", "arguments": an object}}."""

    role: str
    content: str
    tool_calls: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One row of a `conversations` shard. `tools`: JSON text of a list of schemas; `quality`: mean of step scores."""

    task_id: str
    source: str
    messages: tuple[ChatMessage, ...]
    tools: str | None
    outcome: int | None
    quality: float | None
    teacher: str

    @property
    def conversation_id(self) -> str:
        parts = [part or "" for one in self.messages for part in (one.role, one.content, one.tool_calls)]
        return content_id(self.task_id, self.tools or "", *parts)

    def row(self) -> dict[str, Any]:
        messages = list(map(columns, self.messages))
        return columns(self) | {"conversation_id": self.conversation_id, "messages": messages}

    def replies(self) -> list[ChatMessage]:
        return [one for one in self.messages if one.role == "assistant"]


def calls_text(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str | None:
    """The JSON text of calls, each a name and its arguments; None if there are none."""
    if not calls:
        return None
    made = [{"type": "function", "function": {"name": name, "arguments": dict(given)}} for name, given in calls]
    return json.dumps(made, ensure_ascii=False)


def template_messages(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Messages for chat templates: only messages with calls have that key, because some templates test for it."""
    return [
        {"role": one.role, "content": one.content}
        | ({} if one.tool_calls is None else {"tool_calls": json.loads(one.tool_calls)})
        for one in messages
    ]


def _conversation_of(row: Mapping[str, Any]) -> Conversation:
    """The conversation in a row of a shard."""
    names = ("task_id", "source", "tools", "outcome", "quality", "teacher")
    messages = tuple(ChatMessage(**message) for message in row["messages"])
    return Conversation(messages=messages, **{name: row[name] for name in names})


def read_conversations(folder: Path) -> list[Conversation]:
    """The conversations of a complete shard. Raises UserError if calls or tools are not JSON."""
    found = [_conversation_of(row) for row in read_rows(folder, "conversations")]
    for one in found:
        try:
            template_messages(one.messages)
            json.loads(one.tools or "[]")
        except (ValueError, RecursionError):
            raise UserError(
                f"{folder}: conversation {one.conversation_id} has calls or tools that are not JSON; make it again"
            ) from None
    return found
