"""Any chat server as a judge or a teacher: messages in, text and tool calls out, over a client for JSON servers.

A dropped connection, silence for SILENCE seconds, status 429 and 5xx are retried until PATIENCE seconds have passed
since the first failure. A retry equals the failed request, whose seed it carries. Any other status except 200 is final.

Replies have no token ids, so they cannot train a model by their log-probabilities, and they are untrusted: one that is
longer than its tokens can be counts as truncated. A failed request is a missing reply, not an error of the stage,
unless no other request would fare better (`ChatServer._is_final`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import os
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from rla.config.sections import JudgeConfig, JudgeServerConfig
from rla.errors import UserError
from rla.llm.chat import Message
from rla.pictures.prompts import PictureMessage, without_placeholders
from rla.pictures.vision import PromptTokens
from rla.store.records import Judgement
from rla.text import neutral, one_line

SILENCE = 600.0  # seconds without an answer before a request is retried
PATIENCE = 300.0  # seconds for which a failing request is retried
FIRST_DELAY, LONGEST_DELAY = 0.25, 15.0  # seconds between retries, doubling
CONNECTING = 30.0  # seconds
IDLE = 3.0  # seconds that an unused connection stays open, less than uvicorn's 5, which would close it during a request
MOST_BYTES = 1 << 26  # of an answer
EXCERPT = 300  # characters of a server's message in an error
FIRST = 10  # refusals without any answer that show that the request itself is at fault, not its content
LARGEST_SEED = (1 << 31) - 1
MAX_CHARACTERS = 64  # of a token, except for runs of blanks
EXAMPLE = "the base URL of an OpenAI-compatible server, such as http://localhost:8000/v1"

log = logging.getLogger(__name__)


class ServerFailure(UserError):
    """A request failed for good. `status` is None if the server did not answer during PATIENCE."""

    def __init__(self, message: str, *, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class TransientFailure(Exception):
    """An attempt that may succeed if it is retried. `wait` is in seconds, as the server asked."""

    def __init__(self, reason: str, *, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class JsonClient:
    """Requests to one base URL. Connections belong to the running event loop and end with it."""

    def __init__(self, url: str, *, section: str, secret: str, connections: int, whole: bool = False) -> None:
        """`section` holds the keys `url` and `model`; `secret` is the environment variable of the API key, because
        parameters are copied next to every output. With `whole`, an answer must be complete within SILENCE seconds,
        including the wait for a connection.
        """
        self.url, self._section, self._secret = url.rstrip("/"), section, secret
        self._connections, self._whole = connections, whole
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sessions: AsyncGenerator[aiohttp.ClientSession] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._failing = False

    async def ask(self, path: str, body: Any = None, *, check: Callable[[Any], None] | None = None) -> Any:
        """The JSON answer to GET (without a body) or POST; `check` may raise TransientFailure for it. Raises
        ServerFailure.
        """
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop, self._sessions = loop, self._open()
            self._session = await anext(self._sessions)
        deadline, delay = math.inf, FIRST_DELAY
        while True:
            try:
                answer = await self._attempt(self._session, path, body)
                if check is not None:
                    check(answer)
                self._failing = False
                return answer
            except TransientFailure as failure:
                now = time.monotonic()
                deadline = min(deadline, now + PATIENCE)
                # random, so that many callers do not return together
                wait = max(failure.wait, delay * random.uniform(0.5, 1.0))
                if now + wait > deadline:
                    raise ServerFailure(
                        f"{self.url}{path}: {failure}; tried again for {PATIENCE:g} s. Start the server or correct "
                        f"{self._section}.url, and call the stage again: it goes on where it stopped",
                        status=None,
                    ) from None
                if not self._failing:  # one line per outage, however many requests it affects
                    log.warning("%s: %s; trying again for up to %g s", self.url, failure, PATIENCE)
                self._failing = True
            await asyncio.sleep(wait)
            delay = min(2 * delay, LONGEST_DELAY)

    async def _attempt(self, session: aiohttp.ClientSession, path: str, body: Any) -> Any:
        url, data = f"{self.url}{path}", bytearray()
        try:
            # a redirect would carry the key to another host
            async with session.request(
                "GET" if body is None else "POST", url, json=body, allow_redirects=False
            ) as response:
                status, headers = response.status, response.headers
                async for chunk in response.content.iter_chunked(1 << 16):
                    data += chunk
                    if len(data) > MOST_BYTES:
                        raise ServerFailure(f"{url}: an answer of more than {MOST_BYTES} bytes", status=status)
        except aiohttp.ClientSSLError as error:
            raise ServerFailure(f"{self.url}: {error}; mend the certificate or {self._section}.url", status=0) from None
        except aiohttp.ConnectionTimeoutError:
            raise TransientFailure(f"no connection in {CONNECTING:g} s") from None
        except TimeoutError:
            raise TransientFailure(f"no answer in {SILENCE:g} s") from None
        except aiohttp.ClientError as error:
            raise TransientFailure(str(error) or type(error).__name__) from None
        text = data.decode("utf-8", "replace")
        if status == 429 or status >= 500:
            raise TransientFailure(f"status {status}: {_message_of(text)}", wait=_asked_wait(headers))
        if status != 200:
            hint = ""
            if status in (401, 403):
                hint = f"; put the server's API key into the environment variable {self._secret}"
            elif status == 404:
                hint = f"; set {self._section}.url to {EXAMPLE}, and {self._section}.model to a served name"
            raise ServerFailure(f"{url}: status {status}: {_message_of(text)}{hint}", status=status)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ServerFailure(
                f"{url}: the answer is not JSON ({text[:EXCERPT]!r}); set {self._section}.url to {EXAMPLE}",
                status=status,
            ) from None

    async def _open(self) -> AsyncGenerator[aiohttp.ClientSession]:
        """One session. `asyncio.run` ends its asynchronous generators before the loop, and the session with them."""
        key = os.environ.get(self._secret, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise UserError(
                f"{self._secret}: has letters that no API key has; set it to the key alone, without line breaks"
            )
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=IDLE),
            # Limits silence, not the whole time: the server is not at fault if all connections are in use.
            timeout=aiohttp.ClientTimeout(
                total=SILENCE if self._whole else None, sock_connect=CONNECTING, sock_read=SILENCE
            ),
            headers={"Authorization": f"Bearer {key}"} if key else None,
        ) as session:
            yield session


def _asked_wait(headers: Mapping[str, str]) -> float:
    """The seconds of a Retry-After header, 0 if it is a date or nonsense."""
    try:
        wait = float(headers.get("Retry-After", 0.0))
    except ValueError:
        return 0.0
    return wait if math.isfinite(wait) and wait > 0.0 else 0.0


def _message_of(text: str) -> str:
    """The message in an error's body: OpenAI's `error.message`, FastAPI's `detail`, or its beginning, in one line."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return one_line(text, EXCERPT) or "no message"
    if isinstance(data, dict):
        error = data.get("error", data)
        data = (error.get("message") or error.get("detail") or data) if isinstance(error, dict) else error
    return one_line(str(data), EXCERPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """One reply. `truncated` means cut by the server or here. `calls` has the names and arguments of tool calls,
    untrusted JSON texts.
    """

    text: str
    truncated: bool
    calls: tuple[tuple[str, str], ...] = ()


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
        self._config, self._asked = config, asked
        self._client = JsonClient(
            config.url, section=section, secret=secret, connections=config.connections, whole=True
        )
        self._room = asyncio.Semaphore(config.connections)
        self._answered_at = -math.inf
        self._refused = 0
        self._said: set[str] = set()

    async def replies(
        self, messages: Sequence[Mapping[str, Any]], *, samples: int, seed: int, temperature: float, max_tokens: int
    ) -> list[ChatReply]:
        """Up to `samples` replies, without failed ones. Raises UserError if no other request would succeed.

        Each reply is a separate request, because many servers ignore `n`.
        """
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
        async with self._room:
            began = time.monotonic()
            try:
                answer = await self._client.ask("/chat/completions", body)
                reply = _reply_of(answer, MAX_CHARACTERS * max_tokens)
                if reply is None:
                    fault = "an answer has no choices[0].message; use a chat completions server"
                    raise ServerFailure(f"{self._client.url}: {fault}", status=200)
            except ServerFailure as failure:
                if self._is_final(failure, began):
                    raise
                reason = str(failure)
                if reason not in self._said and len(self._said) < FIRST:  # one line per reason
                    self._said.add(reason)
                    log.warning("%s is missing: %s", self._asked, reason)
                return None
            self._answered_at = time.monotonic()
            return reply

    def _is_final(self, failure: ServerFailure, began: float) -> bool:
        """Whether no other request would succeed: the server answered nobody while this request, which began at
        `began`, was retried; it refuses the caller (a wrong key, no credit); or it has answered nobody yet and does not
        know the address or the model, or refused all of the FIRST requests.

        403 is an ordinary refusal, because gateways answer 403 for input that their moderation rejects.
        """
        if failure.status is None:
            return self._answered_at < began
        self._refused += 1
        if failure.status in (401, 402):
            return True
        return self._answered_at < 0 and (failure.status == 404 or self._refused >= FIRST)


def _neutral_content(content: str | Sequence[Mapping[str, Any]]) -> Any:
    """`neutral` for a content, which is a text or a list of parts."""
    if isinstance(content, str):
        return neutral(content)
    return [{**part, "text": neutral(part["text"])} if part["type"] == "text" else part for part in content]


def _reply_of(answer: Any, longest: int) -> ChatReply | None:
    """The first choice of an answer, cut to `longest` characters; None if it has no message."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return None
    text = _text_of(message.get("content"))
    calls = message.get("tool_calls")
    found = [one.get("function") for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
    pairs = [(one.get("name"), one.get("arguments")) for one in found if isinstance(one, dict)]
    return ChatReply(
        text=_cut(text, longest),
        truncated=choice.get("finish_reason") == "length" or len(text) > longest,
        calls=tuple(
            (name, _cut(given if isinstance(given, str) else json.dumps(given), longest))
            for name, given in pairs
            if isinstance(name, str)
        ),
    )


def _cut(text: str, longest: int) -> str:
    """The beginning of a text, without halves of surrogate pairs."""
    return text[:longest].encode("utf-8", "replace").decode()


def _text_of(content: Any) -> str:
    """A message's content: text, or the text among its parts; empty if the model refused to answer."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReplier:
    """Replies of a chat server: text alone, possibly fewer than `judge.votes`. The ids of prompts are unknown, so they
    are empty. Pictures are sent as parts of messages.
    """

    server: ChatServer
    config: JudgeConfig

    async def reply(
        self, messages: Sequence[Message | PictureMessage], *, seed: int, session: str | None = None
    ) -> tuple[PromptTokens, list[Judgement]]:
        replies = await self.server.replies(
            [parts_message(message) if isinstance(message, PictureMessage) else message for message in messages],
            samples=self.config.votes,
            seed=seed,
            temperature=self.config.temperature,
            max_tokens=self.config.max_tokens,
        )
        none: dict[str, Any] = {"token_ids": [], "logprobs": [], "allowed": []}
        found = [Judgement(score=None, text=one.text, truncated=one.truncated, **none) for one in replies]
        return PromptTokens(ids=[]), found

    def release(self, session: str) -> None:
        """Does nothing: nothing is kept by session."""

    def close(self) -> None:
        """Does nothing: connections end with the event loop."""


def judge_on_server(config: JudgeConfig) -> ServerReplier:
    """The replier of the server that `judge.server` names."""
    return ServerReplier(server=ChatServer(config.server), config=config)


def parts_message(message: PictureMessage) -> dict[str, Any]:
    """{"role", "content"} for a chat server. The content is a list of OpenAI's parts, with images as data URLs, or a
    string if there are no images. Servers look for their model's image placeholders in text, so these are broken.
    """
    if all(isinstance(part, str) for part in message.parts):
        return {"role": message.role, "content": "".join(without_placeholders(str(part)) for part in message.parts)}
    return {
        "role": message.role,
        "content": [
            {"type": "text", "text": without_placeholders(part)}
            if isinstance(part, str)
            else {
                "type": "image_url",
                "image_url": {"url": f"data:image/png;base64,{base64.b64encode(part.png).decode()}"},
            }
            for part in message.parts
        ],
    }
