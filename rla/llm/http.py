"""JSON over HTTP to an inference server that may drop, stall or refuse a request for a while.

A dropped connection, silence for SILENCE seconds, status 429 and 5xx are tried again, with delays that double up to
LONGEST_DELAY, each shortened by chance so that many callers do not return together, until PATIENCE has passed since the
request first failed. A request carries its seed and nothing is kept of an attempt that failed, so that a second
attempt replaces the first. Every other answer but 200 is an error at once.
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

API_KEY = "RLA_SERVER_API_KEY"  # environment variable; params lie beside every output, a key must not
SILENCE = 600.0  # seconds without an answer after which a request is made again
PATIENCE = 300.0  # seconds for which a request that fails is made again
FIRST_DELAY, LONGEST_DELAY = 0.25, 15.0  # seconds
CONNECTING = 30.0  # seconds until a machine that does not answer counts as a failure
KEPT = 3.0  # seconds that a connection stays open unused: less than uvicorn's 5, which would end it under a request
MOST_BYTES = 1 << 26  # of an answer
EXCERPT = 300  # characters of a server's message that are shown

log = logging.getLogger(__name__)


class ServerAway(UserError):
    """The server has not answered a request for as long as it is tried again."""


class ServerRefusal(UserError):
    """The server answered with an error that another attempt would not change."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class TransientFailure(Exception):
    """An attempt that may succeed when it is made again. `wait`: seconds that the server asked for."""

    def __init__(self, reason: str, *, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKeys:
    """What the user can change about a server: the parameters that describe it, and the variable of its API key."""

    address: str = "generator.server"
    model: str = "server_model"
    secret: str = API_KEY


class JsonClient:
    """Requests below one base URL. Connections belong to the running event loop and end with it."""

    def __init__(self, url: str, *, connections: int, keys: ServerKeys | None = None, whole: bool = False) -> None:
        """`whole`: an answer has to be complete after SILENCE seconds, the wait for a connection included."""
        self.url, self._keys, self._whole = url.rstrip("/"), keys or ServerKeys(), whole
        self._connections = connections
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sessions: AsyncGenerator[aiohttp.ClientSession] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._failing = False

    async def ask(self, path: str, body: Any = None, *, check: Callable[[Any], None] | None = None) -> Any:
        """The JSON that GET (without a body) or POST answers; `check` may raise TransientFailure for it.

        Raises ServerRefusal for an answer that is final, ServerAway when PATIENCE is over.
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
                text = await body_of(response)
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
            raise TransientFailure(f"status {status}: {message_of(text)}", wait=asked_wait(headers.get("Retry-After")))
        if status != 200:
            said = f"{self.url}{path}: status {status}: {message_of(text)}{self._hint(status)}"
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
        key = key_of(self._keys.secret)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=KEPT),
            # Silence, not the whole time: waiting for one of the connections is no fault of the server.
            timeout=aiohttp.ClientTimeout(
                total=SILENCE if self._whole else None, sock_connect=CONNECTING, sock_read=SILENCE
            ),
            headers={"Authorization": f"Bearer {key}"} if key else None,
        ) as session:
            yield session

    def _note(self, reason: str) -> None:
        """One line for an outage, however many requests it hits."""
        if not self._failing:
            log.warning("%s: %s; trying again for up to %g s", self.url, reason, PATIENCE)
        self._failing = True

    def _given_up(self, path: str, reason: str) -> str:
        return (
            f"{self.url}{path}: {reason}; tried again for {PATIENCE:g} s. "
            f"Start the server or correct {self._keys.address}, and call the stage again: it goes on where it stopped"
        )

    def _hint(self, status: int) -> str:
        """What to do about it, where the status says so."""
        if status in (401, 403):
            return f"; put the server's API key into the environment variable {self._keys.secret}"
        if status == 404:
            address, model = self._keys.address, self._keys.model
            return f"; set {address} to the base URL, such as http://localhost:8000/v1, {model} to a served name"
        return ""


def key_of(variable: str) -> str:
    """The API key in an environment variable, without the blanks and line ends around it. Raises UserError, which does
    not show the key.
    """
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"{variable}: has letters that no API key has; set it to the key alone, without line breaks")
    return key


async def body_of(response: aiohttp.ClientResponse) -> str:
    """The text of an answer; bytes that are no UTF-8 are replaced. Raises ServerRefusal where it has no end."""
    data = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        data += chunk
        if len(data) > MOST_BYTES:
            raise ServerRefusal(f"{response.url}: an answer of more than {MOST_BYTES} bytes", status=response.status)
    return data.decode("utf-8", "replace")


def asked_wait(text: str | None) -> float:
    """Seconds that a Retry-After asks for. It may also be a date, or nonsense: then it is the delay's turn."""
    try:
        wait = float(text or 0.0)
    except ValueError:
        return 0.0
    return wait if math.isfinite(wait) and wait > 0.0 else 0.0


def message_of(text: str) -> str:
    """What an error's body says: OpenAI's `error.message`, FastAPI's `detail`, or its beginning; one line of it."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return without_controls(text[:EXCERPT]) or "no message"
    if isinstance(data, dict):
        error = data.get("error", data)
        data = (error.get("message") or error.get("detail") or data) if isinstance(error, dict) else error
    return without_controls(str(data)[:EXCERPT])


def without_controls(text: str) -> str:
    """What a server wrote, without what acts on a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()
