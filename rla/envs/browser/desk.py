"""Browsers for callers that wait: tasks, demonstrations, labels and proofs are asked for outside of an event loop.

A process has one desk: a thread with an event loop of its own, and a pool of browsers that ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from rla.envs.browser.browsers import BrowserPool
from rla.envs.browser.params import BrowserParams

Answer = TypeVar("Answer")
# What does not matter to a pool.
UNPOOLED: dict[str, Any] = {"mode": "text", "success": "positive", "actions": "short", "cell": 10, "blank": False}
_DESKS: dict[tuple[int, BrowserParams], BrowserDesk] = {}
_MAKING = threading.Lock()


class BrowserDesk:
    """A pool of browsers in a thread. `ask` may be called from any other thread."""

    def __init__(self, own: BrowserParams) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rla-browser", daemon=True)
        self._thread.start()
        self.pool = self._made(own)

    def ask(self, work: Callable[[BrowserPool], Coroutine[Any, Any, Answer]]) -> Answer:
        """What `work` returns of the pool. Raises what it raises."""
        return asyncio.run_coroutine_threadsafe(work(self.pool), self._loop).result()

    def close(self) -> None:
        """Ends the browsers and the thread."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self.pool.close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _made(self, own: BrowserParams) -> BrowserPool:
        try:
            return BrowserPool(own)
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise


def browser_desk(own: BrowserParams) -> BrowserDesk:
    """The desk of this process for these parameters. Raises UserError where there is no browser."""
    key = (os.getpid(), replace(own, **UNPOOLED))
    with _MAKING:
        if key not in _DESKS:
            _DESKS[key] = BrowserDesk(key[1])
        return _DESKS[key]


@atexit.register
def _close_desks() -> None:
    """A process that was forked has none of its own; those of its parent are not in it."""
    for (pid, _), desk in list(_DESKS.items()):
        if pid == os.getpid():
            desk.close()
