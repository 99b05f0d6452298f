"""Browsers that the tests of a file share: starting them takes longer than most tests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.pages import pages_folder
from rla_screens.browser.params import BrowserParams

Answer = TypeVar("Answer")


class SharedBrowsers:
    """A pool on an event loop of its own, which is used by one test at a time."""

    def __init__(self, runner: asyncio.Runner, own: BrowserParams) -> None:
        self._runner, self._own = runner, own
        self._pool = BrowserPool(own)

    def run(self, work: Callable[[BrowserPool], Awaitable[Answer]], own: BrowserParams | None = None) -> Answer:
        """What `work` returns of the pool, with parameters of its own and new figures; it leaves no page open."""
        return self._runner.run(self._worked(work, own or self._own))

    async def _worked(self, work: Callable[[BrowserPool], Awaitable[Answer]], own: BrowserParams) -> Answer:
        pool = self._pool
        pool.own, pool.folder = own, pages_folder(own.folder)
        pool.opened = pool.lost = pool.given_up = 0
        try:
            return await work(pool)
        finally:
            try:
                async with asyncio.timeout(60):
                    while pool.running() or pool._tasks:
                        await asyncio.sleep(0.01)
            finally:
                for page, _ in pool.running():  # so that only this test fails
                    await pool.give(page)
            browsers = pool._driver.browsers if pool._driver is not None else []
            assert [context for one in browsers for context in one.browser.contexts] == []

    async def close(self) -> None:
        await self._pool.close()


@contextmanager
def shared_browsers(**own: int) -> Iterator[SharedBrowsers]:
    with asyncio.Runner() as runner:
        made = SharedBrowsers(runner, BrowserParams(**own))
        try:
            yield made
        finally:
            runner.run(made.close())


def children() -> set[str]:
    """The processes below this one."""
    below, found = {str(os.getpid())}, set[str]()
    stats = [stat.read_text().rpartition(")") for stat in Path("/proc").glob("[0-9]*/stat") if stat.exists()]
    parents = {head.split(" ")[0]: rest.split()[1] for head, _, rest in stats}
    while below:
        below = {pid for pid, parent in parents.items() if parent in below} - found
        found |= below
    return found
