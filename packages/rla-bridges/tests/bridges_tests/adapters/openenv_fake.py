"""A server of the OpenEnv protocol that says whatever a test wants, honest or hostile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

TEXT_ACTION = {"title": "Say", "properties": {"message": {"type": "string"}}, "required": ["message"]}
Reply = Callable[[dict[str, Any]], Any]  # text or bytes to send, an object for JSON, None for silence, or an exception


class HangUp(Exception):
    """The server ends the connection."""


def observation(shown: Any = None, *, reward: Any = None, done: Any = False) -> dict[str, Any]:
    data = {"observation": {"text": "hello"} if shown is None else shown, "reward": reward, "done": done}
    return {"type": "observation", "data": data}


def error(code: str, message: str = "no", **more: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"code": code, "message": message} | more}


class FakeServer:
    """`reply` answers messages; `heard` holds them. At most `sessions` connections; `most` were open at once."""

    def __init__(self, reply: Reply, *, action: Any = None, sessions: int = 1000, metadata: Any = None) -> None:
        self.reply, self.sessions = reply, sessions
        self.routes: dict[str, Any] = {
            "/schema": {"action": TEXT_ACTION if action is None else action},
            "/metadata": {"name": "fake", "description": "Say\nthings."} if metadata is None else metadata,
        }
        self.heard: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.open = self.most = self.refused = 0

    async def http(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        if request.path not in self.routes:
            raise web.HTTPNotFound
        found = self.routes[request.path]
        if isinstance(found, Exception):
            raise found
        return web.Response(text=found if isinstance(found, str) else json.dumps(found))

    async def socket(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if self.open >= self.sessions:
            self.refused += 1
            await socket.send_json(error("CAPACITY_REACHED", max_sessions=self.sessions))
            await socket.close()
            return socket
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await self.converse(socket)
        except HangUp:
            await socket.close()
        finally:
            self.open -= 1
        return socket

    async def converse(self, socket: web.WebSocketResponse) -> None:
        async for message in socket:
            assert message.type is WSMsgType.TEXT
            said = json.loads(message.data)
            if said["type"] == "close":
                return
            self.heard.append(said)
            answer = self.reply(said)
            if isinstance(answer, bytes):
                await socket.send_bytes(answer)
            elif answer is not None:
                await socket.send_str(answer if isinstance(answer, str) else json.dumps(answer))


@asynccontextmanager
async def serving(server: FakeServer) -> AsyncIterator[str]:
    """The address at which the server answers."""
    app = web.Application()
    app.add_routes([web.get("/ws", server.socket), web.route("*", "/{path:.*}", server.http)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)
