"""An episode for synchronous callers: `Environment` in the browser of this process."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from rla.envs.observation import Observation
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.desk import BrowserDesk
from rla_screens.browser.episode import BrowserEpisode, BrowserView
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.scenes import PageScene


class LonePage:
    """Raises as `BrowserEpisode` does."""

    def __init__(self, desk: BrowserDesk, scene: PageScene, view: BrowserView, own: BrowserParams) -> None:
        self._desk = desk
        self._episode = BrowserEpisode(desk.pool, scene, view, success=own.success)

    def reset(self) -> Observation:
        return self._desk.ask(lambda _: self._episode.reset())

    def step(self, action: str) -> Observation:
        return self._desk.ask(lambda _: self._episode.step(action))

    def close(self) -> None:
        def closing(_: BrowserPool) -> Coroutine[Any, Any, None]:
            async def close() -> None:
                self._episode.close()

            return close()

        self._desk.ask(closing)
