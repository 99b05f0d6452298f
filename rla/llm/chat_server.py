"""Any chat server as a judge or a teacher: messages in, text and tool calls out.

There are no token ids, so replies cannot train a model by their log-probabilities.

Each reply is a separate request to `/chat/completions`, because many servers ignore `n`. Replies are untrusted: one
that is longer than its tokens can be counts as truncated.

A failed request is a missing reply, not an error of the stage. The stage ends only if the server

- refuses the caller (FATAL),
- does not find the address or the model (NOT_FOUND) before it has answered any request,
- refuses all of the first requests,
- or answers no request while one is retried.

Status 403 is an ordinary refusal, because gateways answer 403 for input that their moderation rejects.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rla.config.sections import JudgeServerConfig
from rla.errors import UserError
from rla.folding import neutral
from rla.llm.http import JsonClient, ServerAway, ServerKeys, ServerRefusal

FATAL = (401, 402)  # a wrong key, no credit: the next request would fail too
NOT_FOUND = 404
FIRST = 10  # refusals without any answer that show that the request itself is at fault, not its content
LARGEST_SEED = (1 << 31) - 1
MAX_CHARACTERS = 64  # of a token, except for runs of blanks

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """One reply. `truncated` means cut by the server or here. `calls` has the names and arguments of tool calls,
    untrusted JSON texts.
    """

    text: str
    truncated: bool
    calls: tuple[tuple[str, str], ...] = ()


class _NoReply(Exception):
    """An answer without a reply."""


class ChatServer:
    """Asks one served model. Used from one event loop at a time."""

    def __init__(
        self,
        config: JudgeServerConfig,
        *,
        section: str = "judge.server",
        asked: str = "a judgement",
        secret: str = "RLA_JUDGE_API_KEY",
    ) -> None:
        """For messages, `section` is the path of `config` in the parameters and `asked` names a reply. `secret` is the
        environment variable of the API key.
        """
        self._config, self._address, self._asked = config, f"{section}.url", asked
        keys = ServerKeys(address=self._address, model=f"{section}.model", secret=secret)
        self._client = JsonClient(config.url, connections=config.connections, keys=keys, whole=True)
        self._room = asyncio.Semaphore(config.connections)
        self._answered_at = -math.inf
        self._refused = 0
        self._said: set[str] = set()

    async def replies(
        self, messages: Sequence[Mapping[str, Any]], *, samples: int, seed: int, temperature: float, max_tokens: int
    ) -> list[ChatReply]:
        """Up to `samples` replies, without failed ones. Raises UserError if no other request would succeed."""
        asked = [
            self.turn(messages, (), seed=seed + index, temperature=temperature, max_tokens=max_tokens)
            for index in range(samples)
        ]
        return [reply for reply in await asyncio.gather(*asked) if reply is not None]

    async def turn(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        *,
        seed: int,
        temperature: float,
        max_tokens: int,
    ) -> ChatReply | None:
        """One reply, which may call `tools` (function schemas); None if it failed. Raises UserError like `replies`."""
        body = {
            "model": self._config.model,
            "messages": [{**message, "content": _neutral_content(message["content"])} for message in messages],
            "temperature": temperature,
            self._config.length_key: max_tokens,
            "stream": False,
            **({"tools": list(tools)} if tools else {}),
            **({"seed": seed & LARGEST_SEED} if self._config.seeded else {}),
        }
        return await self._reply(body, MAX_CHARACTERS * max_tokens)

    async def _reply(self, body: dict[str, Any], longest: int) -> ChatReply | None:
        async with self._room:
            began = time.monotonic()
            try:
                reply = _reply_of(await self._client.ask("/chat/completions", body), longest)
            except ServerAway as away:
                if self._answered_at < began:
                    raise
                self._missing(str(away))
            except ServerRefusal as refusal:
                self._refused += 1
                unknown = refusal.status == NOT_FOUND or self._refused >= FIRST
                if refusal.status in FATAL or (self._answered_at < 0 and unknown):
                    raise
                self._missing(str(refusal))
            except _NoReply as none:
                self._refused += 1
                if self._answered_at < 0 and self._refused >= FIRST:
                    raise UserError(
                        f"{self._address} {self._client.url}: {none}; use a chat completions server"
                    ) from None
                self._missing(str(none))
            else:
                self._answered_at = time.monotonic()
                return reply
        return None

    def _missing(self, reason: str) -> None:
        """Log one line per reason, however often it occurs."""
        if reason not in self._said and len(self._said) < FIRST:
            self._said.add(reason)
            log.warning("%s is missing: %s", self._asked, reason)


def _neutral_content(content: str | Sequence[Mapping[str, Any]]) -> Any:
    """`neutral` for a content, which is a text or a list of parts."""
    if isinstance(content, str):
        return neutral(content)
    return [{**part, "text": neutral(part["text"])} if part["type"] == "text" else part for part in content]


def _reply_of(answer: Any, longest: int) -> ChatReply:
    """The first choice of an answer. Raises _NoReply."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise _NoReply("an answer has no choices[0].message")
    text = _text_of(message.get("content"))
    return ChatReply(
        text=text[:longest].encode("utf-8", "replace").decode(),  # halves of a surrogate pair are no text
        truncated=choice.get("finish_reason") == "length" or len(text) > longest,
        calls=_tool_calls_of(message.get("tool_calls"), longest),
    )


def _tool_calls_of(calls: Any, longest: int) -> tuple[tuple[str, str], ...]:
    """Names and arguments of the calls of a message. Calls without either are ignored, long arguments are cut."""
    found = [one.get("function") for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
    pairs = [(one.get("name"), one.get("arguments")) for one in found if isinstance(one, dict)]
    return tuple(
        (name, (given if isinstance(given, str) else json.dumps(given))[:longest].encode("utf-8", "replace").decode())
        for name, given in pairs
        if isinstance(name, str)
    )


def _text_of(content: Any) -> str:
    """A message's content: text, or the text among its parts; empty if the model refused to answer."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))
