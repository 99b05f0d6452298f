"""JSON over HTTP to an inference server that may drop, stall or refuse requests for a while.

A dropped connection, silence for SILENCE seconds, status 429 and 5xx are retried until PATIENCE seconds have passed
since the first failure, with delays that double up to LONGEST_DELAY and are shortened at random, so that many callers
do not return together. A retry equals the failed request, whose seed it carries. Any other status except 200 is an
error at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from rla.errors import UserError
from rla.folding import one_line

API_KEY = "RLA_SERVER_API_KEY"  # an environment variable, because params are copied next to every output
SILENCE = 600.0  # seconds without an answer before a request is retried
PATIENCE = 300.0  # seconds for which a failing request is retried
FIRST_DELAY, LONGEST_DELAY = 0.25, 15.0  # seconds
CONNECTING = 30.0  # seconds
KEPT = 3.0  # seconds that an idle connection stays open, less than uvicorn's 5, which would close it during a request
MOST_BYTES = 1 << 26  # of an answer
EXCERPT = 300  # characters of a server's message in an error

log = logging.getLogger(__name__)


class ServerAway(UserError):
    """The server did not answer a request during PATIENCE."""


class ServerRefusal(UserError):
    """The server answered with an error that a retry would not change."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class TransientFailure(Exception):
    """An attempt that may succeed if it is retried. `wait` is in seconds, as the server asked."""

    def __init__(self, reason: str, *, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKeys:
    """Names for messages: the parameters that describe a server, and the environment variable of its API key."""

    address: str = "generator.server"
    model: str = "server_model"
    secret: str = API_KEY


class JsonClient:
    """Requests to one base URL. Connections belong to the running event loop and end with it."""

    def __init__(self, url: str, *, connections: int, keys: ServerKeys | None = None, whole: bool = False) -> None:
        """With `whole`, an answer must be complete within SILENCE seconds, including the wait for a connection."""
        self.url, self._keys, self._whole = url.rstrip("/"), keys or ServerKeys(), whole
        self._connections = connections
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sessions: AsyncGenerator[aiohttp.ClientSession] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._failing = False

    async def ask(self, path: str, body: Any = None, *, check: Callable[[Any], None] | None = None) -> Any:
        """The JSON answer to GET (without a body) or POST; `check` may raise TransientFailure for it.

        Raises ServerRefusal for a final error, ServerAway once PATIENCE is over.
        """
        session = await self._opened()
        failed_at: float | None = None
        delay = FIRST_DELAY
        while True:
            try:
                answer = await self._attempt(session, path, body)
                if check is not None:
                    check(answer)
                self._failing = False
                return answer
            except TransientFailure as failure:
                now = time.monotonic()
                failed_at = now if failed_at is None else failed_at
                wait = max(failure.wait, delay * random.uniform(0.5, 1.0))
                if now + wait - failed_at > PATIENCE:
                    raise ServerAway(self._given_up(path, str(failure))) from None
                self._note(str(failure))
            await asyncio.sleep(wait)
            delay = min(2 * delay, LONGEST_DELAY)

    async def _attempt(self, session: aiohttp.ClientSession, path: str, body: Any) -> Any:
        method = "GET" if body is None else "POST"
        try:
            async with session.request(method, f"{self.url}{path}", json=body, allow_redirects=False) as response:
                text = await _body_of(response)
                status, headers = response.status, response.headers
        except aiohttp.ClientSSLError as error:
            raise ServerRefusal(
                f"{self.url}: {error}; mend the certificate or {self._keys.address}", status=0
            ) from None
        except aiohttp.ConnectionTimeoutError:
            raise TransientFailure(f"no connection in {CONNECTING:g} s") from None
        except TimeoutError:
            raise TransientFailure(f"no answer in {SILENCE:g} s") from None
        except aiohttp.ClientError as error:
            raise TransientFailure(str(error) or type(error).__name__) from None
        if status == 429 or status >= 500:
            raise TransientFailure(
                f"status {status}: {_message_of(text)}", wait=_asked_wait(headers.get("Retry-After"))
            )
        if status != 200:
            said = f"{self.url}{path}: status {status}: {_message_of(text)}{self._hint(status)}"
            raise ServerRefusal(said, status=status)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ServerRefusal(
                f"{self.url}{path}: the answer is not JSON ({text[:EXCERPT]!r}); set {self._keys.address} to the base "
                "URL of an OpenAI-compatible server, such as http://localhost:8000/v1",
                status=status,
            ) from None

    async def _opened(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop, self._sessions = loop, self._open()
            self._session = await anext(self._sessions)
        return self._session

    async def _open(self) -> AsyncGenerator[aiohttp.ClientSession]:
        """One session. `asyncio.run` ends its asynchronous generators before the loop, and the session with them."""
        key = _key_of(self._keys.secret)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=KEPT),
            # Limits silence, not the whole time: the server is not at fault if all connections are in use.
            timeout=aiohttp.ClientTimeout(
                total=SILENCE if self._whole else None, sock_connect=CONNECTING, sock_read=SILENCE
            ),
            headers={"Authorization": f"Bearer {key}"} if key else None,
        ) as session:
            yield session

    def _note(self, reason: str) -> None:
        """Log one line per outage, however many requests it affects."""
        if not self._failing:
            log.warning("%s: %s; trying again for up to %g s", self.url, reason, PATIENCE)
        self._failing = True

    def _given_up(self, path: str, reason: str) -> str:
        return (
            f"{self.url}{path}: {reason}; tried again for {PATIENCE:g} s. "
            f"Start the server or correct {self._keys.address}, and call the stage again: it goes on where it stopped"
        )

    def _hint(self, status: int) -> str:
        if status in (401, 403):
            return f"; put the server's API key into the environment variable {self._keys.secret}"
        if status == 404:
            address, model = self._keys.address, self._keys.model
            return f"; set {address} to the base URL, such as http://localhost:8000/v1, {model} to a served name"
        return ""


def _key_of(variable: str) -> str:
    """The API key in an environment variable, stripped. Raises UserError, which does not show the key."""
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"{variable}: has letters that no API key has; set it to the key alone, without line breaks")
    return key


async def _body_of(response: aiohttp.ClientResponse) -> str:
    """The text of an answer; invalid UTF-8 is replaced. Raises ServerRefusal if it is too long."""
    data = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        data += chunk
        if len(data) > MOST_BYTES:
            raise ServerRefusal(f"{response.url}: an answer of more than {MOST_BYTES} bytes", status=response.status)
    return data.decode("utf-8", "replace")


def _asked_wait(text: str | None) -> float:
    """The seconds of a Retry-After header, 0 if it is a date or nonsense."""
    try:
        wait = float(text or 0.0)
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
