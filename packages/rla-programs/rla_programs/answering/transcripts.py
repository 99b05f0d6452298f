"""Conversations that were held elsewhere, split into replies and the answers to each.

    messages    {"role", "content", "tool_calls"?}, as in OpenAI's and Hermes's formats: a reply is a message of the
                assistant, and its answer is everything that follows it. A content is a string, a list of parts with
                texts, or null.
    a string    is one reply, unless the policy's prompt finds calls and results in it (`ReadsTranscripts`)

The final answer of a transcript is its last reply. There is none if that reply is a call, or if a result follows it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rla.envs.protocols import PolicyPrompt
from rla.text import after_thinking

RESULTS = ("tool", "function")
ROLES_READ = ("system", "developer", "user", "assistant", *RESULTS)


@runtime_checkable
class WritesCalls(Protocol):
    """A `ToolPrompt` that accepts calls as data, as chat servers send them."""

    def written(self, text: str, calls: Sequence[tuple[str, str]]) -> str:
        """The reply: `text`, then the calls. Each is a name and arguments as JSON text, which a model wrote and which
        may be invalid.
        """
        ...


@runtime_checkable
class ReadsTranscripts(Protocol):
    """A `ToolPrompt` that reads episodes played elsewhere. It runs nothing."""

    def turns_in(self, text: str) -> Sequence[tuple[str, str | None]]:
        """The replies in a text, at least one, each with the answer to it or None."""
        ...

    def called(self, reply: str) -> int:
        """How many calls a reply makes, including unreadable ones."""
        ...


class NoTranscript(ValueError):
    """The messages are invalid; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidTurn:
    """A message of the assistant: its text, the name and arguments (as JSON text) of its calls, and the answer to it.

    `answer`: None if there is none, or none that belongs to the episode.
    """

    text: str
    calls: tuple[tuple[str, str], ...] = ()
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenMessages:
    """`asked`: the user's text before the first reply."""

    asked: str
    turns: tuple[SaidTurn, ...]


Given = str | GivenMessages


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedElsewhere:
    """A finished episode. `calls`: the number of calls. `told`: whether that number is known; a string without any call
    may be just the last reply. `answered`: whether the last reply is an answer.
    """

    replies: list[str]
    answers: list[str]
    calls: int
    told: bool
    answered: bool


def played_elsewhere(given: Given, prompt: PolicyPrompt) -> PlayedElsewhere:
    """The episode as the environment of `prompt` would have read it."""
    reader = prompt if isinstance(prompt, ReadsTranscripts) else None
    turns = (SaidTurn(text=given),) if isinstance(given, str) else given.turns
    replies, answers, calls, last = list[str](), list[str](), 0, 0
    result: str | None = None
    for turn in turns:
        for text, result in reader.turns_in(turn.text) if reader else [(turn.text, None)]:
            last = reader.called(text) if reader else 0
            calls += last
            replies.append(after_thinking(text))
            answers.append(result or "")
        if turn.calls:
            calls, last = calls + len(turn.calls), len(turn.calls)
            replies[-1] = prompt.written(replies[-1], turn.calls) if isinstance(prompt, WritesCalls) else replies[-1]
        result = turn.answer if turn.answer is not None else result
        answers[-1] = result or ""
    empty = len(replies) > 1 and not replies[-1].strip()
    return PlayedElsewhere(
        replies=replies,
        answers=answers,
        calls=calls,
        told=not isinstance(given, str) or calls > 0 or len(replies) > 1,
        answered=not (last or empty or result is not None),
    )


def given_messages(messages: Any) -> GivenMessages:
    """Raises NoTranscript."""
    if not isinstance(messages, list) or not all(isinstance(one, Mapping) for one in messages):
        raise NoTranscript("messages is not a list of messages")
    roles = [one.get("role") for one in messages]
    if unknown := [role for role in roles if role not in ROLES_READ]:
        raise NoTranscript(f"a message has the role {str(unknown[0])[:40]!r}")
    if "assistant" not in roles:
        raise NoTranscript("no message is of the assistant")
    texts = [_content_text(one.get("content")) for one in messages]
    starts = [place for place, role in enumerate(roles) if role == "assistant"]
    ends = [*starts[1:], len(messages)]
    return GivenMessages(
        asked="\n".join(text for role, text in zip(roles[: starts[0]], texts, strict=False) if role == "user"),
        turns=tuple(
            SaidTurn(
                text=texts[start],
                calls=_called_functions(messages[start].get("tool_calls")),
                answer=_answer_after(roles[start + 1 : end], texts[start + 1 : end], over=end == len(messages)),
            )
            for start, end in zip(starts, ends, strict=True)
        ),
    )


def _answer_after(roles: Sequence[str], texts: Sequence[str], *, over: bool) -> str | None:
    """The messages after a reply as its answer. A user's message at the very end does not belong to the episode."""
    if not roles or (over and not any(role in RESULTS for role in roles)):
        return None
    return "\n\n".join(texts)


def _called_functions(calls: Any) -> tuple[tuple[str, str], ...]:
    """The calls of a message, given as a list, as its JSON text, or as nothing."""
    if isinstance(calls, str):
        try:
            calls = json.loads(calls)
        except (ValueError, RecursionError):
            raise NoTranscript("tool_calls is a string that is not JSON") from None
    if not isinstance(calls, list | None):
        raise NoTranscript("tool_calls is not a list")
    return tuple(map(_called_function, calls or ()))


def _called_function(call: Any) -> tuple[str, str]:
    """Name and arguments of a call; arguments that are not JSON stay as the model wrote them."""
    function = call.get("function") or call if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str):
        raise NoTranscript("a call in tool_calls has no name")
    arguments = function.get("arguments")
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)


def _content_text(content: Any) -> str:
    """The text of a content."""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") or "" if isinstance(part, Mapping) else part or "" for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise NoTranscript("a content is neither a text nor a list of parts with texts")
    return "".join(texts)
