"""JSON over HTTP to an inference server that may drop, stall or refuse a request for a while.

A dropped connection, silence beyond `timeout`, status 429 and 5xx are tried again, with delays that double up to
LONGEST_DELAY, each shortened by chance so that many callers do not return together, until `patience` has passed since
the request first failed. A request carries its seed and nothing is kept of an attempt that failed, so that a second
attempt replaces the first. Every other answer but 200 is an error at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import aiohttp

from rla.errors import UserError

API_KEY = "RLA_SERVER_API_KEY"  # environment variable; params lie beside every output, a key must not
FIRST_DELAY, LONGEST_DELAY = 0.25, 15.0  # seconds
CONNECTING = 30.0  # seconds until a machine that does not answer counts as a failure
KEPT = 3.0  # seconds that a connection stays open unused: less than uvicorn's 5, which would end it under a request
EXCERPT = 300  # characters of a server's message that are shown

log = logging.getLogger(__name__)


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


class JsonClient:
    """Requests below one base URL. Connections belong to the running event loop and end with it."""

    def __init__(self, url: str, *, connections: int, timeout: float, patience: float) -> None:
        self.url = url.rstrip("/")
        self._connections, self._timeout, self._patience = connections, timeout, patience
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sessions: AsyncGenerator[aiohttp.ClientSession] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._failing = False

    async def ask(self, path: str, body: Any = None, *, check: Callable[[Any], None] | None = None) -> Any:
        """The JSON that GET (without a body) or POST answers; `check` may raise TransientFailure for it.

        Raises ServerRefusal for an answer that is final, UserError when `patience` is over.
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
                if now + wait - failed_at > self._patience:
                    raise UserError(self._given_up(path, str(failure))) from None
                self._note(str(failure))
            await asyncio.sleep(wait)
            delay = min(2 * delay, LONGEST_DELAY)

    async def _attempt(self, session: aiohttp.ClientSession, path: str, body: Any) -> Any:
        method = "GET" if body is None else "POST"
        try:
            async with session.request(method, f"{self.url}{path}", json=body, allow_redirects=False) as response:
                text = await response.text()
                status, headers = response.status, response.headers
        except aiohttp.ClientSSLError as error:
            raise ServerRefusal(f"{self.url}: {error}; mend the certificate or generator.server", status=0) from None
        except aiohttp.ConnectionTimeoutError:
            raise TransientFailure(f"no connection in {CONNECTING:g} s") from None
        except TimeoutError:
            raise TransientFailure(f"no answer in generator.server_timeout = {self._timeout:g} s") from None
        except aiohttp.ClientError as error:
            raise TransientFailure(str(error) or type(error).__name__) from None
        if status == 429 or status >= 500:
            after = headers.get("Retry-After", "")
            wait = float(after) if after.isdigit() else 0.0  # it may also be a date: then it is the delay's turn
            raise TransientFailure(f"status {status}: {message_of(text)}", wait=wait)
        if status != 200:
            raise ServerRefusal(f"{self.url}{path}: status {status}: {message_of(text)}{hint(status)}", status=status)
        try:
            return json.loads(text)
        except ValueError:
            raise ServerRefusal(
                f"{self.url}{path}: the answer is not JSON ({text[:EXCERPT]!r}); set generator.server to the base URL "
                "of an OpenAI-compatible server, such as http://localhost:8000/v1",
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
        key = os.environ.get(API_KEY)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=KEPT),
            # Silence, not the whole time: waiting for one of the connections is no fault of the server.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECTING, sock_read=self._timeout),
            headers={"Authorization": f"Bearer {key}"} if key else None,
        ) as session:
            yield session

    def _note(self, reason: str) -> None:
        """One line for an outage, however many requests it hits."""
        if not self._failing:
            log.warning("%s: %s; trying again for up to %g s", self.url, reason, self._patience)
        self._failing = True

    def _given_up(self, path: str, reason: str) -> str:
        return (
            f"{self.url}{path}: {reason}; tried again for generator.server_patience = {self._patience:g} s. "
            "Start the server or correct generator.server, and call the stage again: it goes on where it stopped"
        )


def message_of(text: str) -> str:
    """What an error's body says: OpenAI's `error.message`, FastAPI's `detail`, or its beginning."""
    try:
        data = json.loads(text)
    except ValueError:
        return text[:EXCERPT].strip() or "no message"
    if isinstance(data, dict):
        error = data.get("error", data)
        data = (error.get("message") or error.get("detail") or data) if isinstance(error, dict) else error
    return str(data)[:EXCERPT]


def hint(status: int) -> str:
    """What to do about it, where the status says so."""
    if status in (401, 403):
        return f"; put the server's API key into the environment variable {API_KEY}"
    if status == 404:
        return "; set generator.server to the base URL, such as http://localhost:8000/v1, server_model to a served name"
    return ""
