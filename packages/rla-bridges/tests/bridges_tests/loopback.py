"""An HTTP server on the loopback address, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from aiohttp import web


class LoopbackServer:
    """`with server: ... server.url`, which ends with `/v1`. Handlers may wait for `stop`, set when the block ends."""

    def __init__(self, routes: Sequence[web.RouteDef], *, largest: int = 1 << 20) -> None:
        """`largest`: bytes of a request's body."""
        self.url, self._routes, self._largest = "", routes, largest
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self.stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self.stop = asyncio.Event()
        app = web.Application(client_max_size=self._largest)
        app.add_routes(self._routes)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self._ready.set()
        await self.stop.wait()
        await runner.cleanup()
