"""Conversations of a file in the published layout, as Parquet or JSON lines.

| column | content |
|---|---|
| `messages` | list of {role, content, tool_calls?}; a call is {function: {name, arguments}} |
| `conversations` | the same, or the ShareGPT layout: list of {from, value}, with `system` next to it |
| `content` | a string, or a list of parts with texts, which are joined |
| `reasoning_content` | thoughts of the assistant, under a name in `THOUGHTS`: `<think>` tags before the content |
| `arguments` of a call | an object, or JSON text; missing or empty ones are an empty object |
| `tools` | list of schemas, or its JSON text; optional |
| `enable_thinking` | ignored: no template that trains (`chat_tokens`) prints anything different for it |

Roles are `system`, `user`, `assistant` and `tool`, or other names for them (`ROLE`). Arrow pads structs with the keys
of other rows, so nulls among arguments are dropped, at every depth.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rla_bridges.lenient_json import lenient_loads

from rla.errors import UserError
from rla.store.manifest import MANIFEST, STARTED
from rla.store.reading import column_batches, opened_part
from rla.text import whole_text, whole_texts
from rla_programs.collecting.conversations import ROLES, ChatMessage, Conversation, calls_text, read_conversations

KINDS = (".parquet", ".jsonl")
SOURCES = ("source", "data_source", "ability")  # columns that may name the source of a conversation


CALLS = ("function_call", "tool_call")  # roles of ShareGPT whose value is a call
ROLE = {role: role for role in ROLES} | {
    "developer": "system",
    "human": "user",
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "model", *CALLS), "assistant"),
    **dict.fromkeys(("function", "observation", "function_response", "tool_response", "ipython"), "tool"),
}
THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # keys of a message, or types of a part of its content


class NotAConversation(ValueError):
    """A row that is not a conversation; the message says why."""


def conversations_at(path: Path, *, tell: Callable[[str], None] = lambda text: None) -> list[Conversation]:
    """The conversations of a shard folder, of a file, or of all files of a folder. `tell` gets a line about rows that
    were left out. Raises UserError if there are none.
    """
    files = parts_of_source(path)
    if files == [path] and path.is_dir():
        return read_conversations(path)
    if not files or not all(one.is_file() and one.suffix in KINDS for one in files):
        raise UserError(f"{path}: neither a conversations shard nor a file that ends in {' or '.join(KINDS)}")
    found: list[Conversation] = []
    faults: list[str] = []
    for file in files:
        for place, row in _rows(file):
            try:
                found.append(published_conversation(row, teacher=file.name))
            except NotAConversation as fault:
                faults.append(f"{file.name}, {place}: {fault}")
    if faults:
        tell(f"{path}: {len(faults)} rows are not conversations; {faults[0]}")
    if not found:
        raise UserError(f"{path}: no row of it is a conversation; it needs a column `messages` (docs/guide/sft.md)")
    return found


def parts_of_source(path: Path) -> list[Path]:
    """The parts of a source of conversations, each with its own digest: the shard itself, or the files of a folder."""
    if not path.is_dir() or any((path / name).is_file() for name in (MANIFEST, STARTED)):
        return [path]
    return sorted(one for one in path.iterdir() if one.suffix in KINDS)


def published_conversation(row: Any, *, teacher: str) -> Conversation:
    """Raises NotAConversation."""
    if not isinstance(row, Mapping):
        raise NotAConversation("no JSON object")
    messages = row.get("messages") or row.get("conversations")
    messages = _json(messages) if isinstance(messages, str) and messages.lstrip().startswith("[") else messages
    messages = messages.get("messages") if isinstance(messages, Mapping) else messages
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise NotAConversation("`messages` is not a list")
    if isinstance(row.get("system"), str) and row["system"].strip():
        messages = [{"role": "system", "content": row["system"]}, *messages]
    read = _one_system(tuple(map(_message, messages)))
    if not any(one.role == "assistant" for one in read):
        raise NotAConversation("nobody replies")
    outcome = row.get("outcome")
    found = Conversation(
        task_id=whole_text(str(row.get("task_id") or "")),
        source=whole_text(next((str(row[name]) for name in SOURCES if row.get(name)), teacher)),
        messages=read,
        tools=_tools(row.get("tools")),
        outcome=outcome if outcome in (-1, 1) else None,
        quality=None,
        teacher=whole_text(str(row.get("teacher") or teacher)),
    )
    texts = [found.tools, *(text for one in read for text in (one.content, one.tool_calls))]
    if whole_texts(texts) != texts:
        raise NotAConversation("half of a surrogate pair, which is not a character")
    return found


def _one_system(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """The messages, with system and developer messages at the beginning joined into one."""
    first = next((place for place, one in enumerate(messages) if one.role != "system"), len(messages))
    if any(one.role == "system" for one in messages[first:]):
        raise NotAConversation("a system message that is not the first")
    if first < 2:
        return messages
    told = "\n\n".join(one.content for one in messages[:first])
    return ChatMessage(role="system", content=told), *messages[first:]


def _message(one: Any) -> ChatMessage:
    # Parquet has nulls for missing keys
    said = one.get("role") or one.get("from") if isinstance(one, Mapping) else None
    said = said.lower() if isinstance(said, str) else said
    if not isinstance(said, str) or said not in ROLE:
        raise NotAConversation(f"a message whose role is not one of {', '.join(ROLE)}")
    given = one.get("value") if one.get("content") is None else one["content"]
    thoughts = [part for part in given if _is_thought(part)] if isinstance(given, list) else []
    role, content = ROLE[said], _text([part for part in given if not _is_thought(part)] if thoughts else given)
    calls = one.get("tool_calls")
    calls = _json(calls) if isinstance(calls, str) else calls
    calls = calls or [one["function_call"]] if one.get("function_call") else calls
    if said in CALLS:
        calls, content = _json(content), ""
        calls = calls if isinstance(calls, list) else [calls]
    read = [_call(call) for call in calls or ()]
    if read and role != "assistant":
        raise NotAConversation(f"a call in a message of role {said}")
    thought = "".join(map(_thought, thoughts)) or next((_text(one[key]) for key in THOUGHTS if one.get(key)), "")
    if role == "assistant" and thought.strip() and "</think>" not in content:
        content = f"<think>\n{thought.strip()}\n</think>\n\n{content}"
    return ChatMessage(role=role, content=content, tool_calls=calls_text(read))


def _text(content: Any) -> str:
    """The text of a content: itself, or its parts joined."""
    parts = content if isinstance(content, list) else [content or ""]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    said = [text for text in texts if isinstance(text, str)]
    if len(said) < len(texts):
        raise NotAConversation("a content that is not text")
    return "".join(said)


def _is_thought(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in THOUGHTS


def _thought(part: Mapping[str, Any]) -> str:
    """The text of a thought: under `text`, or under the name of its type."""
    return _text(next((part[key] for key in ("text", *THOUGHTS) if part.get(key)), ""))


def _call(call: Any) -> tuple[str, Mapping[str, Any]]:
    function = call.get("function") or call if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str):
        raise NotAConversation("a call without a name")
    arguments = function.get("arguments")
    for _ in range(2):  # some files have JSON text inside JSON text
        arguments = (_json(arguments) if arguments.strip() else {}) if isinstance(arguments, str) else arguments
    arguments = arguments if isinstance(function.get("arguments"), str) else _without_nulls(arguments)
    arguments = {} if arguments is None else arguments
    if not isinstance(arguments, Mapping):
        raise NotAConversation("arguments of a call that are not an object")
    return name, arguments


def _without_nulls(value: Any) -> Any:
    """Nested data without the keys whose value is null, which Arrow has added."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _tools(tools: Any) -> str | None:
    tools = _json(tools) if isinstance(tools, str) and tools else tools
    if not tools:
        return None
    if not isinstance(tools, Sequence) or not all(isinstance(one, Mapping) for one in tools):
        raise NotAConversation("`tools` is not a list of schemas")
    return json.dumps(_without_nulls(list(tools)), ensure_ascii=False)


def _json(text: str) -> Any:
    try:
        return lenient_loads(text)
    except (ValueError, RecursionError):
        raise NotAConversation("a string that is not JSON in place of messages, calls, arguments or tools") from None


def _rows(file: Path) -> Iterator[tuple[str, Any]]:
    """The position of each row, counted from 1, and its content. Empty lines do not count as rows."""
    if file.suffix == ".parquet":
        with opened_part(file, remedy="fetch or write the file again, or leave it out") as parquet:
            rows = chain.from_iterable(batch.to_pylist() for batch in column_batches(file, parquet, None, rows=64))
            yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))
        return
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode())
            except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
                raise UserError(f"{file}: line {number} is not JSON in UTF-8; fix it or leave it out") from None
            yield f"line {number}", row
