"""The client side of the OpenEnv wire protocol: JSON over HTTP describes a server, and a websocket carries an episode.

| message at `/ws` | answer |
|---|---|
| `{"type": "reset", "data": {"seed": 3}}` | `{"type": "observation", "data": {"observation", "reward", "done"}}` |
| `{"type": "step", "data": action}` | the same; `reward` is the reward of this step |
| `{"type": "close"}` | none |

Any message may be answered by `{"type": "error", "data": {"message", "code"}}`. The server is untrusted: the size of
its answers is limited, their types are checked, and anything invalid is an EnvironmentFailure.

RLA_ENV_TOKEN in the process's environment is sent as a bearer token. It is not a parameter, because parameters are
stored next to every output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from rla.envs.observation import EnvironmentFailure
from rla.errors import UserError

TOKEN = "RLA_ENV_TOKEN"
LARGEST_ANSWER = 4 << 20  # bytes
UNREAD = 4  # unrequested messages that may queue up
CLOSING = 5.0  # seconds that a server has to confirm the end of a connection
EXCERPT = 300  # characters of a server's message that are shown

Json = Mapping[str, Any]


class Refused(Exception):
    """The server answered with an error. `code` is the protocol's name for it."""

    def __init__(self, code: str, message: str, *, sessions: int | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code, self.message, self.sessions = code, message, sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class WireAnswer:
    """The server's answer to a reset or a step; `reward` is the reward of this step alone."""

    observation: dict[str, Any]
    reward: float
    done: bool


def decoded(text: str | bytes) -> Any:
    """Parse JSON. Raises EnvironmentFailure."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise EnvironmentFailure("the server's answer is not JSON") from None


def clean(text: str) -> str:
    """`text` without lone surrogates, which cannot be written to a file."""
    return text.encode("utf-8", "replace").decode("utf-8")


def clipped(value: Any) -> str:
    """The beginning of a text. For other values their type, because they may be nested deeper than Python can print."""
    return clean(value[:EXCERPT]) if isinstance(value, str) else f"a value of type {type(value).__name__}"


def read_answer(text: str) -> WireAnswer:
    """The answer in a message. Raises Refused for an error, EnvironmentFailure for anything that is neither."""
    message = decoded(text)
    kind, data = (message.get("type"), message.get("data")) if isinstance(message, dict) else (None, None)
    if not isinstance(data, dict) or kind not in ("observation", "error"):
        raise EnvironmentFailure(f"the server's answer is not an observation: {clean(text[:EXCERPT])!r}")
    if kind == "error":
        most = data.get("max_sessions")
        raise Refused(
            clipped(data.get("code", "UNKNOWN")),
            clipped(data.get("message", "")),
            sessions=most if type(most) is int and most > 0 else None,
        )
    observation, done = data.get("observation"), data.get("done", False)
    if not isinstance(observation, dict):
        raise EnvironmentFailure("the server's observation is not a JSON object")
    if not isinstance(done, bool):
        raise EnvironmentFailure(f"the server's `done` is neither true nor false: {clipped(done)}")
    return WireAnswer(observation=observation, reward=_reward_of(data.get("reward")), done=done)


def _reward_of(value: Any) -> float:
    """The reward as a finite number; 0 if the server gives none. Raises EnvironmentFailure."""
    if value is None:
        return 0.0
    if isinstance(value, int | float):  # true and false count as 1 and 0, as in the protocol's own package
        with contextlib.suppress(OverflowError):
            if math.isfinite(float(value)):
                return float(value)
    raise EnvironmentFailure(f"the server's reward is not a finite number: {clipped(value)}")


def base_url(text: str) -> str:
    """The address of a server. Raises UserError if it is not an HTTP address."""
    try:
        parts = urlsplit(text.rstrip("/"))
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username is not None:
        raise UserError(
            f"env.own.id is {text!r}; set it to the address of an OpenEnv server, as in --env openenv:http://127.0.0.1:8000"
        )
    return text.rstrip("/")


class Wire:
    """One websocket. It reads continuously, because pings are only answered while it reads."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, *, timeout: float) -> None:
        self._socket, self._timeout = socket, timeout
        self._answers = asyncio.Queue[str | None]()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.TEXT or self._answers.qsize() > UNREAD:
                break
            self._answers.put_nowait(message.data)
        self._answers.put_nowait(None)

    async def ask(self, kind: str, data: Json) -> WireAnswer:
        """The answer to a message. Raises Refused, and EnvironmentFailure, after which the connection is unusable."""
        text = json.dumps({"type": kind, "data": data}, allow_nan=False)
        try:
            async with asyncio.timeout(self._timeout):
                with contextlib.suppress(aiohttp.ClientError, OSError):  # a full server says so and hangs up
                    await self._socket.send_str(text)
                answer = await self._answers.get()
        except TimeoutError:
            raise EnvironmentFailure(f"no answer in env.own.timeout = {self._timeout:g} s") from None
        if answer is None:
            self._answers.put_nowait(None)
            raise EnvironmentFailure(f"the server closed the connection ({self._why()})")
        return read_answer(answer)

    def _why(self) -> str:
        error = self._socket.exception()
        return str(error)[:EXCERPT] if error is not None else f"code {self._socket.close_code}"

    async def close(self) -> None:
        """Close the connection and tell the server."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(CLOSING):
                if not self._socket.closed:
                    await self._socket.send_str('{"type": "close"}')
                await self._socket.close()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


class OpenEnvClient:
    """Requests and connections to one server. They belong to the running event loop and end with it at the latest."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self.url, self._timeout = base_url(url), timeout
        self._sessions: AsyncGenerator[aiohttp.ClientSession] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._sessions = self._open()
            self._session = await anext(self._sessions)
        return self._session

    async def _open(self) -> AsyncGenerator[aiohttp.ClientSession]:
        """Keep one session open. `asyncio.run` closes its asynchronous generators, and so the session, before the
        loop.
        """
        token = os.environ.get(TOKEN)
        headers = {"Authorization": f"Bearer {token}"} if token else None
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:
            yield session

    async def fetch(self, path: str, body: Json | None = None) -> Any:
        """The JSON answer to a GET, or to a POST if there is a body; None for status 404 and 501. Raises UserError."""
        try:
            async with (
                asyncio.timeout(self._timeout),
                (await self._opened()).request(
                    "GET" if body is None else "POST", f"{self.url}{path}", json=body, allow_redirects=False
                ) as response,
            ):
                data = await self._limited(response)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise UserError(
                f"env.own.id: {self.url}{path} does not answer ({str(error)[:EXCERPT] or type(error).__name__}); "
                "start the OpenEnv server or correct the address"
            ) from None
        if response.status in (404, 501):
            return None
        if response.status in (401, 403):
            raise UserError(
                f"env.own.id: {self.url}{path}: status {response.status}; put the server's token into {TOKEN}"
            )
        try:
            if response.status != 200:
                raise EnvironmentFailure(f"status {response.status}")
            return decoded(data)
        except EnvironmentFailure as failure:
            raise UserError(f"env.own.id: {self.url}{path}: {failure}; is it an OpenEnv server?") from None

    async def _limited(self, response: aiohttp.ClientResponse) -> bytes:
        data = bytearray()
        async for part in response.content.iter_chunked(1 << 16):
            data += part
            if len(data) > LARGEST_ANSWER:
                raise ValueError(f"the answer is longer than {LARGEST_ANSWER} bytes")
        return bytes(data)

    async def connect(self) -> Wire:
        """A new connection, which is a session of the server. Raises EnvironmentFailure."""
        try:
            async with asyncio.timeout(self._timeout):
                socket = await (await self._opened()).ws_connect(
                    f"{self.url}/ws", max_msg_size=LARGEST_ANSWER, timeout=aiohttp.ClientWSTimeout(ws_close=CLOSING)
                )
        except TimeoutError:
            raise EnvironmentFailure(f"no connection in env.own.timeout = {self._timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise EnvironmentFailure(f"no connection ({str(error)[:EXCERPT] or type(error).__name__})") from None
        return Wire(socket, timeout=self._timeout)

    async def close(self) -> None:
        sessions, self._sessions, self._session = self._sessions, None, None
        if sessions is not None:
            await sessions.aclose()
