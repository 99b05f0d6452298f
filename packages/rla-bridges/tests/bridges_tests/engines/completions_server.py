"""An OpenAI-compatible completions server over a Generator, in a thread, that misbehaves as it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any

from aiohttp import web

from bridges_tests.loopback import LoopbackServer
from rla.llm.base import Completion, Generator, Request, TokenTrie


class Fault(StrEnum):
    """What happens to one request instead of an answer."""

    DROP = "drop"  # the connection ends before anything is sent
    CUT = "cut"  # the connection ends in the middle of the answer
    STALL = "stall"  # nothing is ever sent
    ABORT = "abort"  # an answer whose reply was given up
    BUSY = "429"
    BROKEN = "500"
    REFUSED = "400"


Faults = Callable[[int], Fault | None]  # by the number of the completion request, from 0
Report = Callable[[Request, Completion], list[float]]  # the log-probabilities that are reported


class CompletionsServer(LoopbackServer):
    """`with CompletionsServer(engine) as server: ... server.url`. `requests` holds the bodies in order of arrival."""

    def __init__(
        self,
        engine: Generator,
        *,
        faults: Faults = lambda number: None,
        report: Report = lambda request, completion: completion.logprobs,
        omit: Collection[str] = (),
        text: Callable[[list[int]], str] = lambda ids: "",
        models: list[dict[str, Any]] | None = None,
        key: str | None = None,
    ) -> None:
        self.engine, self.faults, self.report, self.omit, self.text, self.key = engine, faults, report, omit, text, key
        self.models = [{"id": "tiny"}] if models is None else models
        self.requests: list[dict[str, Any]] = []
        routes = [web.get("/v1/models", self._list), web.post("/v1/completions", self._complete)]
        super().__init__(routes, largest=1 << 24)

    async def _list(self, request: web.Request) -> web.Response:
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "no such key"}}, status=401)
        return web.json_response({"object": "list", "data": self.models})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        fault = self.faults(len(self.requests))
        self.requests.append(body)
        assert request.transport is not None
        if fault is Fault.DROP:
            request.transport.abort()
            return web.Response()
        if fault is Fault.STALL:
            await self.stop.wait()
        if fault is Fault.BUSY:
            return web.json_response({"error": {"message": "too many"}}, status=429, headers={"Retry-After": "0"})
        if fault is Fault.BROKEN:
            return web.Response(text="Internal Server Error", status=500)
        if fault is Fault.REFUSED:
            return web.json_response({"error": {"message": "this model cannot do that"}}, status=400)
        answer = await self._answer(body)
        if fault is Fault.ABORT:
            answer["choices"][0] |= {"token_ids": [], "finish_reason": "abort"}
        if fault is not Fault.CUT:
            return web.json_response(answer)
        text = json.dumps(answer).encode()
        response = web.StreamResponse(headers={"Content-Length": str(len(text))})
        await response.prepare(request)
        await response.write(text[: len(text) // 2])
        request.transport.abort()
        return response

    async def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        allowed = body.get("allowed_token_ids")
        request = Request(
            prompt_ids=body["prompt"],
            max_tokens=body["max_tokens"],
            temperature=body["temperature"],
            seed=body["seed"],
            samples=body["n"],
            allowed=TokenTrie([token] for token in allowed) if allowed else None,
        )
        choices = []
        for index, completion in enumerate(await self.engine.generate(request)):
            choice = {
                "index": index,
                "text": self.text(completion.token_ids),
                "logprobs": {"token_logprobs": self.report(request, completion)},
                "finish_reason": completion.finish_reason.value,
                "token_ids": completion.token_ids,
                "prompt_token_ids": body["prompt"],
            }
            choices.append({key: value for key, value in choice.items() if key not in self.omit})
        return {"object": "text_completion", "choices": choices[::-1]}
