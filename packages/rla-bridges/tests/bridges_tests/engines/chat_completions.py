"""A chat server on the loopback address, in a thread, that answers each request as it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from bridges_tests.loopback import LoopbackServer

Answer = Callable[[int, dict[str, Any]], Any]  # number of the request, its body -> a `web.Response`, or the JSON


def reply(text: Any, finish: str = "stop") -> dict[str, Any]:
    """The JSON of a chat completion."""
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}]}


class ChatCompletions(LoopbackServer):
    """`with ChatCompletions(answer) as server: ... server.url`. `bodies`, `keys`: of the requests in their order.

    `most`: requests that were answered at a time.
    """

    def __init__(self, answer: Answer, *, seconds: float = 0.0) -> None:
        self.answer, self.seconds = answer, seconds
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.most = self._now = 0
        super().__init__([web.post("/v1/chat/completions", self._complete)])

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        number, body = len(self.bodies), await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization"))
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(self.seconds)
        self._now -= 1
        answer = self.answer(number, body)
        if answer is None:  # the connection ends
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        return answer if isinstance(answer, web.StreamResponse) else web.Response(text=json.dumps(answer))
