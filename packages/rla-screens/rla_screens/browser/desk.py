"""Browsers for synchronous callers: tasks, demonstrations, labels and proofs are requested outside of an event loop.

A process has one desk: a thread with its own event loop, and a pool of browsers that ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from queue import LifoQueue
from typing import Any, TypeVar

from rla.envs.observation import EnvironmentFailure
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.driver import PageLost
from rla_screens.browser.modes import PlayedMode, played_mode
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.playing import KEPT, ScenePlayer

Answer = TypeVar("Answer")
TRIES = 2
PLAYERS = 4  # while some wait for their page, others draw theirs
# Minimum of places besides the pages that players keep, whatever `contexts` says: one for an episode, and one to draw
# or prove a task at the same time. With fewer, one would wait for a place that is never returned.
PLACES = 2
# Parameters that do not affect the pool.
UNPOOLED = ("mode", "success", "other_pages", "actions", "cell")
_DESKS: dict[tuple[int, BrowserParams], BrowserDesk] = {}
_LATEST = (BrowserParams(), 1.0, 0)
_MAKING = threading.Lock()


class BrowserDesk:
    """A pool of browsers in a thread. `ask` may be called from any other thread."""

    def __init__(self, own: BrowserParams) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rla-browser", daemon=True)
        self._thread.start()
        self.pool = self._made(own)
        self._players = [ScenePlayer(self.pool) for _ in range(PLAYERS)]
        self._free: LifoQueue[ScenePlayer] = LifoQueue()  # the last one has its pages open
        for player in self._players:
            self._free.put(player)

    def ask(self, work: Callable[[BrowserPool], Coroutine[Any, Any, Answer]]) -> Answer:
        """The result of `work` on the pool. Raises its exceptions."""
        return asyncio.run_coroutine_threadsafe(work(self.pool), self._loop).result()

    def play(self, work: Callable[[ScenePlayer], Coroutine[Any, Any, Answer]]) -> Answer:
        """The result of `work` on a player. A player has one caller at a time, and callers wait until one is free. If
        the page is lost, `work` runs once more, so it has to begin its scenes itself. Raises EnvironmentFailure after
        two losses.
        """
        player = self._free.get()
        try:
            for _ in range(TRIES):
                try:
                    return self.ask(lambda _: work(player))
                except PageLost as error:
                    lost = error
                    self.ask(lambda _: player.lose())
            raise EnvironmentFailure(f"the page {lost}, twice")
        finally:
            self._free.put(player)

    def close(self) -> None:
        """End the browsers and the thread."""
        if not self._loop.is_closed():
            self.ask(self._closed)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _closed(self, pool: BrowserPool) -> None:
        for player in self._players:
            await player.close()
        await pool.close()

    def _made(self, own: BrowserParams) -> BrowserPool:
        try:
            return BrowserPool(replace(own, contexts=max(own.contexts, PLACES) + PLAYERS * KEPT))
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise


def browser_desk(own: BrowserParams) -> BrowserDesk:
    """The desk of this process for these parameters. Raises UserError if there is no browser."""
    plain: dict[str, Any] = {name: getattr(BrowserParams(), name) for name in UNPOOLED}
    key = (os.getpid(), replace(own, **plain))
    with _MAKING:
        if key not in _DESKS:
            _DESKS[key] = BrowserDesk(key[1])
        return _DESKS[key]


def remember(own: BrowserParams, threshold: float, max_steps: int) -> None:
    """Record parameters that this process has read, with `env.reward_threshold` and `env.max_steps`. `latest_desk` and
    `latest_mode` use the last ones recorded.
    """
    global _LATEST
    _LATEST = (own, threshold, max_steps)


def latest_desk() -> BrowserDesk:
    """For callers without parameters. Raises UserError if there is no browser."""
    return browser_desk(_LATEST[0])


def latest_has_parameters() -> bool:
    """For callers without parameters: whether pages have parameters (`BrowserPool.settings`). Needs no browser."""
    return not _LATEST[0].folder


def latest_mode() -> PlayedMode:
    """For callers without parameters: how the policy plays, and what counts as a win."""
    return played_mode(*_LATEST)


@atexit.register
def _close_desks() -> None:
    """Desks do not survive a fork: the child has none of its own and must not use those of its parent."""
    for (pid, _), desk in list(_DESKS.items()):
        if pid == os.getpid():
            desk.close()
