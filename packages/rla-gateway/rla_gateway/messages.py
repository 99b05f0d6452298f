"""OpenAI's chat completions: requests, which are read strictly, and the answers to them.

Everything in a request is untrusted. Its sampling parameters are ignored: the policy is sampled as it trains.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rla_programs.execution.nesting import too_deep
from rla_programs.tool.calls import CallFormat, ToolCall, Turn
from rla_programs.tool.hermes import arguments_given

from rla.agents import NO_ACTION
from rla.store.records import Step

MODEL = "policy"  # the one model that the endpoint lists; a request may name any other
MOST_MESSAGES = 4096
CHOICES = ("auto", "none", "required")  # required is like auto: the policy may answer without a call
ROLES = {name: name for name in ("system", "user", "assistant", "tool")} | {"developer": "system", "function": "tool"}


class BadRequest(Exception):
    """A request that is refused: a sentence for the author of the agent, an HTTP status, and OpenAI's code."""

    def __init__(self, message: str, *, status: int = 400, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class WireMessage:
    """A role, a text, and the calls of an assistant as (name, arguments as JSON)."""

    role: str
    text: str
    calls: tuple[tuple[str, str], ...] = ()

    def content(self, calls: CallFormat) -> str:
        """The message as the model reads it."""
        made = [ToolCall(name=name, arguments=json.loads(arguments)) for name, arguments in self.calls]
        return calls.render(self.text, made) if made else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """`digest`: of the body, equal for a request that is sent again. `usage`: a stream ends with the counts."""

    messages: tuple[WireMessage, ...]
    tools: tuple[Mapping[str, Any], ...]
    stream: bool
    usage: bool
    digest: str


def read_chat(body: bytes) -> ChatRequest:
    """Raises BadRequest."""
    try:
        data = json.loads(body)
        json.dumps(data, ensure_ascii=False).encode()  # an escape may be half of a surrogate pair
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON in UTF-8") from None
    _expect(isinstance(data, dict) and not too_deep(data), "the body must be a JSON object, not nested too deeply")
    messages, tools, options = data.get("messages"), data.get("tools") or [], data.get("stream_options")
    counted = isinstance(messages, list) and 1 <= len(messages) <= MOST_MESSAGES
    _expect(counted, f"messages must be a list of 1 to {MOST_MESSAGES} messages")
    _expect(data.get("n") in (None, 1), "n must be 1: send the request again for another reply")
    _expect(isinstance(tools, list) and all(map(_named, tools)), "tools must be a list of functions with names")
    choice = data.get("tool_choice") or "auto"
    _expect(choice in CHOICES, f"tool_choice must be one of {', '.join(CHOICES)}: a function cannot be forced")
    return ChatRequest(
        messages=tuple(map(_read_message, messages)),
        tools=() if choice == "none" else tuple(tools),
        stream=data.get("stream") is True,
        usage=isinstance(options, dict) and options.get("include_usage") is True,
        digest=hashlib.sha256(body).hexdigest(),
    )


def _expect(kept: bool, rule: str) -> None:
    if not kept:
        raise BadRequest(rule)


def _named(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _read_message(message: Any) -> WireMessage:
    role = ROLES.get(str(message.get("role"))) if isinstance(message, dict) else None
    if role is None:
        raise BadRequest(f"a message must be an object whose role is one of {', '.join(ROLES)}")
    content, called = message.get("content") or "", message.get("tool_calls") or []
    parts = [{"text": content}] if isinstance(content, str) else content
    texts = [one.get("text") if isinstance(one, dict) else None for one in parts] if isinstance(parts, list) else [None]
    _expect(all(isinstance(text, str) for text in texts), "content must be a text or a list of texts, without images")
    _expect(isinstance(called, list) and all(map(_named, called)), "tool_calls must be a list of calls with names")
    calls = []
    for function in (one["function"] for one in called if role == "assistant"):
        arguments = arguments_given(function.get("arguments"))
        _expect(isinstance(arguments, dict), "the arguments of a call must be a JSON object, as text")
        calls.append((function["name"], json.dumps(arguments)))
    return WireMessage(role, "".join(map(str, texts)), tuple(calls))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """A reply of the policy, and the body of its completion. `understood`: its calls, if any, could be read."""

    message: WireMessage
    body: dict[str, Any]
    understood: bool

    def written(self, request: ChatRequest) -> bytes:
        """The body, or a stream of events: the whole message, its end, and the counts if they are asked for."""
        if not request.stream:
            return json.dumps(self.body).encode()
        head = {**self.body, "object": "chat.completion.chunk"}
        (choice,), counts = head.pop("choices"), head.pop("usage")
        whole = {"index": 0, "delta": choice["message"], "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        parts = [{"choices": [whole]}, {"choices": [end]}, {"choices": [], "usage": counts}][: 2 + request.usage]
        events = [*(json.dumps(head | one) for one in parts), "[DONE]"]
        return "".join(f"data: {event}\n\n" for event in events).encode()


def answer_of(action: str, step: Step, *, name: str, calls: CallFormat | None) -> ChatAnswer:
    """The answer `name`. `calls`: reads the calls of the reply; None if the request has no tools."""
    text = "" if action == NO_ACTION else action
    parsed = calls.parse(text) if calls else Turn(text=text)
    made = [(one.name, json.dumps(dict(one.arguments))) for one in parsed.calls if isinstance(one, ToolCall)]
    understood = len(made) == len(parsed.calls)
    message = WireMessage("assistant", parsed.text.strip(), tuple(made))
    if not understood:  # the agent reads the whole reply as text
        message = WireMessage("assistant", text)
    told: dict[str, Any] = {"role": "assistant", "content": message.text or (None if message.calls else "")}
    if message.calls:
        told["tool_calls"] = [
            {"index": number, "id": f"call_{name}_{number}", "type": "function"}
            | {"function": {"name": function, "arguments": arguments}}
            for number, (function, arguments) in enumerate(message.calls)
        ]
    finish = "length" if step.truncated else "tool_calls" if message.calls else "stop"
    counts = {"prompt_tokens": step.start, "completion_tokens": step.end - step.start, "total_tokens": step.end}
    choice = {"index": 0, "message": told, "finish_reason": finish, "logprobs": None}
    head = {"id": f"chatcmpl-{name}", "object": "chat.completion", "created": int(time.time()), "model": MODEL}
    return ChatAnswer(message=message, body={**head, "choices": [choice], "usage": counts}, understood=understood)
