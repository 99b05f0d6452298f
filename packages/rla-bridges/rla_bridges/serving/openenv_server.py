"""Any of our environments as an OpenEnv server: `rla env serve`.

A websocket at `/ws` is a session with an environment of its own. `/health`, `/schema` and `/metadata` describe the
server. `/list_environments` and the routes below the environment's name list its tasks, as in the protocol's task API.
There are no HTTP routes for a reset or a step, because they would forget the episode at once.

Limits: `sessions` at a time, LARGEST_MESSAGE bytes per message, `idle` seconds without a message, and the limits of
`connections.py` for clients that only connect. A bad message is answered with an error; any other failure in a session
ends only that session. Requests from web pages in a browser are refused. If there is a token, clients must send it as a
bearer token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from rla.errors import UserError
from rla_bridges.serving.connections import Connections, log_of_requests, most_connections, sockets_of
from rla_bridges.serving.env_session import EnvSession, ServedEnv
from rla_bridges.serving.openenv_messages import BadMessage, Data, client_message, error_message, metadata_of, schemas
from rla_bridges.serving.served_tasks import task_card

LARGEST_MESSAGE = 1 << 20  # bytes
LARGEST_BODY = 1 << 16
BODY_S = 10.0  # seconds for the body of a request
KEPT_S = 15.0  # seconds that an idle connection is kept for its next request
AHEAD = 8  # messages that a client may send before the first is answered
HEARTBEAT = 30.0  # seconds between checks that a client is still there
STOPPING = 2.0  # seconds that sessions have to end
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """`idle` is in seconds. `token` is required of clients, unless it is None."""

    sessions: int = 64
    idle: float = 3600.0
    token: str | None = None


@dataclass(slots=True)
class OpenEnvServer:
    """The routes and the open sessions."""

    served: ServedEnv
    limits: ServerLimits
    sockets: set[web.WebSocketResponse] = field(default_factory=set)
    connections: Connections = field(init=False)

    def __post_init__(self) -> None:
        self.connections = Connections(most=most_connections(self.limits.sessions))

    def application(self) -> web.Application:
        name = self.served.name
        app = web.Application(middlewares=[self._guarded], client_max_size=LARGEST_BODY)
        app.add_routes(
            [
                web.get("/ws", self.session),
                web.get("/health", _constant({"status": "healthy"})),
                web.get("/schema", _constant(schemas())),
                web.get("/metadata", _constant(metadata_of(name))),
                web.get("/list_environments", _constant([name])),
                web.get(f"/{name}/splits", _constant(self.served.tasks.described())),
                web.post(f"/{name}/num_tasks", self.num_tasks),
                web.post(f"/{name}/tasks", self.tasks),
                web.post(f"/{name}/task", self.task),
                web.post(f"/{name}/task_range", self.tasks),
            ]
        )
        app.on_shutdown.append(self._hang_up)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.connections.heard(request.transport)
        if "Origin" in request.headers:  # otherwise any page that is open in a browser could play
            return _refusal("browsers are not served", 403)
        wanted = f"Bearer {self.limits.token}"
        given = request.headers.get("Authorization", "")
        known = self.limits.token is None or hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
        if not known and request.path != "/health":
            return _refusal("a bearer token is needed", 401)
        try:
            return await handler(request)
        except BadMessage as flaw:
            return _refusal(str(flaw), 400)

    async def session(self, request: web.Request) -> web.StreamResponse:
        """One websocket, from its beginning to its end."""
        socket = web.WebSocketResponse(max_msg_size=LARGEST_MESSAGE, heartbeat=HEARTBEAT, compress=False)
        await socket.prepare(request)
        if len(self.sockets) >= self.limits.sessions:
            counts = {"active_sessions": len(self.sockets), "max_sessions": self.limits.sessions}
            await _send(socket, error_message("CAPACITY_REACHED", "all sessions are taken", **counts))
            await socket.close()
            return socket
        self.sockets.add(socket)
        session = EnvSession(self.served)
        try:
            with self.connections.playing(request.transport):
                await self._converse(socket, session)
        finally:
            session.close()
            self.sockets.discard(socket)
        return socket

    async def _converse(self, socket: web.WebSocketResponse, session: EnvSession) -> None:
        async with _messages(socket) as incoming:
            while True:
                try:
                    async with asyncio.timeout(self.limits.idle):
                        text = await incoming.get()
                except TimeoutError:
                    await _send(socket, error_message("SESSION_ERROR", f"idle for {self.limits.idle:g} s"))
                    return
                if text is None:
                    return
                try:
                    kind, data = client_message(text)
                    if kind == "close":
                        return
                    answer = await session.answer(kind, data)
                except BadMessage as flaw:
                    answer = error_message(flaw.code, str(flaw))
                await _send(socket, answer)

    async def _hang_up(self, _: web.Application) -> None:
        ending = [socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server stops") for socket in self.sockets]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOPPING):
                await asyncio.gather(*ending)

    async def num_tasks(self, request: web.Request) -> web.Response:
        body = await _body(request)
        return web.json_response({"num_tasks": len(self.served.tasks.of_split(body.get("split")))})

    async def tasks(self, request: web.Request) -> web.Response:
        """All tasks of a split, or those from `start` to before `stop`."""
        body = await _body(request)
        bounds = slice(_bound(body, "start"), _bound(body, "stop"))
        cards = [task_card(task, index) for index, task in enumerate(self.served.tasks.of_split(body.get("split")))]
        return web.json_response({"tasks": cards[bounds], "env_name": self.served.name})

    async def task(self, request: web.Request) -> web.Response:
        body = await _body(request)
        tasks, index = self.served.tasks.of_split(body.get("split")), _bound(body, "index")
        if index is None or not 0 <= index < len(tasks):
            return _refusal("Invalid task index", 400)
        return web.json_response({"task": task_card(tasks[index], index)})


@contextlib.asynccontextmanager
async def _messages(socket: web.WebSocketResponse) -> AsyncIterator[asyncio.Queue[str | None]]:
    """Texts as they arrive, None at the end. They are read concurrently, because only reading answers pings."""
    incoming = asyncio.Queue[str | None](AHEAD)

    async def read() -> None:
        async for message in socket:
            if message.type is WSMsgType.ERROR:
                break
            await incoming.put(message.data if message.type is WSMsgType.TEXT else "")
        await incoming.put(None)

    reader = asyncio.create_task(read())
    try:
        yield incoming
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        with contextlib.suppress(OSError):
            await socket.close()


async def _send(socket: web.WebSocketResponse, message: Data) -> None:
    with contextlib.suppress(OSError):  # the other end is gone: the next message is None
        await socket.send_str(json.dumps(message, allow_nan=False))


def _constant(data: Any) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response(data)

    return handler


def _refusal(message: str, status: int) -> web.Response:
    return web.json_response({"detail": message}, status=status)


async def _body(request: web.Request) -> dict[str, Any]:
    """A JSON object whose `split` is a string. Raises BadMessage."""
    try:
        async with asyncio.timeout(BODY_S):
            body = await request.json()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except (ValueError, LookupError, RecursionError):  # not JSON, an unknown charset, or nested too deeply
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("split"), str):
        raise BadMessage("VALIDATION_ERROR", 'the body must be a JSON object with "split", a text')
    return body


def _bound(body: Data, key: str) -> int | None:
    found = body.get(key)
    if found is not None and type(found) is not int:
        raise BadMessage("VALIDATION_ERROR", f"{key} must be a whole number")
    return found


@contextlib.asynccontextmanager
async def serving(server: OpenEnvServer, *, host: str, port: int) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port. Raises UserError if the address is taken."""
    application = server.application()
    runner = web.AppRunner(
        application, access_log=None, logger=log_of_requests, shutdown_timeout=STOPPING, keepalive_timeout=KEPT_S
    )
    await runner.setup()
    try:
        try:
            sockets = sockets_of(host, port)
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror or error}; choose another port or --host") from None
        assert runner.server is not None
        accepting = asyncio.create_task(server.connections.accept(sockets, runner.server))
        try:
            yield sockets[0].getsockname()[1]
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
    finally:
        await runner.cleanup()


async def serve_openenv(server: OpenEnvServer, *, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. `ready` is called with the address. Raises UserError if it is taken."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    async with serving(server, host=host, port=port) as found:
        try:
            for number in signals:
                loop.add_signal_handler(number, stopping.set)
            ready(f"http://{_shown(host)}:{found}")
            await stopping.wait()
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
