"""Browser processes that the episodes of a stage share, with one context per episode.

A page that hangs is closed with its context. If the context does not close, its browser is killed, and the browser's
other episodes are replayed elsewhere. Pages are opened and closed by tasks of the pool, so a cancelled caller leaks
neither a context nor a place. The layer below is `rla_screens.browser.drivers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from rla.errors import UserError
from rla_screens.browser.driver import BrowserPage, PageLost, page_answering
from rla_screens.browser.drivers import CLOSING_S, WORN, RunningBrowser, RunningDriver, launched_browser, started_driver
from rla_screens.browser.page_parameters import page_settings
from rla_screens.browser.pages import KEEPING, pages_folder
from rla_screens.browser.params import BrowserParams, browser_program

Answer = TypeVar("Answer")
STARTS = 3  # tries to start a browser
# No name is resolved and every connection goes to a closed port, because pages are files.
FLAGS = (
    "--block-new-web-contents",
    "--disable-background-networking",
    "--disable-gpu",
    "--disable-partial-raster",  # partial redraws differ in the last bit
    "--disable-smooth-scrolling",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--font-render-hinting=none",
)


class BrowserPool:
    """At most `processes` browsers with `contexts` pages each, or more per browser if not all of them start. Only one
    event loop may use it. Raises UserError if no browser is available.
    """

    def __init__(self, own: BrowserParams) -> None:
        self.own, self.folder = own, pages_folder(own.folder)
        self.opened = 0  # pages that were opened
        self.lost = 0  # pages that hung or died
        self.given_up = 0  # episodes that ended because of that
        self._program = browser_program(own)
        self._places = asyncio.Semaphore(own.processes * own.contexts)
        self._starting = asyncio.Lock()
        self._driver: RunningDriver | None = None
        self._of: dict[BrowserPage, RunningBrowser] = {}
        self._tasks = set[asyncio.Task[Any]]()

    def begins_again(self, page: str) -> bool:
        """Whether an open page can begin another episode without a reload, because it keeps no state of the last
        one.
        """
        return page not in KEEPING and not self.own.folder

    def settings(self, page: str, parameters: Mapping[str, int]) -> dict[str, int]:
        """The page's variables to set at its start; pages of another folder have no parameters."""
        return {} if self.own.folder else page_settings(page, parameters)

    async def take(self) -> BrowserPage:
        """A page in a new context; waits for a place. Raises UserError."""
        await self._places.acquire()
        return await self._seated(self._opened())

    async def give(self, page: BrowserPage) -> None:
        """Close a page with its context, and return its place."""
        await asyncio.shield(self._in_background(self._given(page)))

    def release(self, page: BrowserPage) -> None:
        """The same in the background."""
        self._in_background(self._given(page))

    async def replaced(self, page: BrowserPage) -> BrowserPage:
        """A new page in the place of a lost one. Raises UserError; then the place has been returned."""
        self.lost += 1
        return await self._seated(self._opened_after(page))

    def figures(self) -> dict[str, float]:
        """The number of pages opened, of pages lost, and of episodes that ended because of a loss."""
        counts = {"pages": self.opened, "pages_lost": self.lost, "pages_given_up": self.given_up}
        return {name: float(count) for name, count in counts.items()} if self.opened else {}

    def running(self) -> list[tuple[BrowserPage, RunningBrowser]]:
        """The pages in use, each with its browser."""
        return list(self._of.items())

    async def close(self) -> None:
        """End everything that was started. All episodes must be closed before."""
        closing = asyncio.ensure_future(self._closed())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:  # the event loop may end right afterwards, so finish first
            await closing
            raise

    async def _closed(self) -> None:
        try:
            while self._tasks:
                await asyncio.wait(set(self._tasks))
            for page in list(self._of):
                await self._ended(page)
        finally:
            async with self._starting:
                await self._end_driver()

    def _in_background(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        """Start a task that `close` waits for and that callers do not cancel."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _seated(self, opening: Coroutine[Any, Any, BrowserPage]) -> BrowserPage:
        """A page for a place that the caller has taken. If opening fails, the place is returned. If the caller has
        stopped waiting, the page is closed as well.
        """
        task = self._in_background(opening)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._in_background(self._unwanted(task))
            raise
        except BaseException:
            self._places.release()
            raise

    async def _unwanted(self, opening: asyncio.Task[BrowserPage]) -> None:
        await asyncio.wait({opening})
        if opening.cancelled() or opening.exception() is not None:
            self._places.release()
        else:
            await self._given(opening.result())

    async def _given(self, page: BrowserPage) -> None:
        try:
            await self._ended(page)
        finally:
            self._places.release()

    async def _opened_after(self, lost: BrowserPage) -> BrowserPage:
        await self._ended(lost)
        return await self._opened()

    async def _ended(self, page: BrowserPage) -> None:
        running = self._of.pop(page, None)
        if running is None:
            return
        running.open -= 1
        try:
            async with page_answering(CLOSING_S):
                await page.context.close()
        except PageLost:
            running.kill()
        await self._retired(running)

    async def _opened(self) -> BrowserPage:
        reason = ""
        for _ in range(STARTS):
            running: RunningBrowser | None = None
            try:
                async with self._starting:
                    running = await self._browser()
                    running.open += 1
                    running.served += 1
                async with page_answering(self.own.reset_s):
                    context = await running.browser.new_context(
                        viewport={"width": self.own.width, "height": self.own.height},
                        accept_downloads=False,
                        offline=True,
                        service_workers="block",
                        locale="en-US",
                        timezone_id="UTC",
                    )
                    page = await BrowserPage.opened(context, self.folder, step_ms=self.own.step_ms)
                self._of[page] = running
                self.opened += 1
                return page
            except PageLost as lost:
                reason = str(lost)
                if running is not None:  # its other pages may be fine, but it gets no new ones
                    running.open -= 1
                    running.served = WORN
                    await self._retired(running)
        raise UserError(f"the browser {self._program} cannot be used: it {reason}; name another in env.own.executable")

    async def _browser(self) -> RunningBrowser:
        """The browser with the fewest pages, or a new one. If a new one does not start, an existing one is used;
        without any, the driver ends with everything that it has started. Raises PageLost.
        """
        if self._driver is None:
            self._driver = await started_driver(longest_s=self.own.reset_s)
        usable = [one for one in self._driver.browsers if one.usable]
        best = min(usable, key=lambda one: one.open, default=None)
        if best is not None and (best.open == 0 or len(usable) >= self.own.processes):
            return best
        try:
            started = await launched_browser(self._driver.playwright, self._program, FLAGS, longest_s=self.own.reset_s)
        except PageLost:
            if best is not None and best.usable:
                return best
            await self._end_driver()
            raise
        self._driver.browsers.append(started)
        return started

    async def _retired(self, running: RunningBrowser) -> None:
        """End a browser that has no pages and will not get new ones."""
        if running.open or running.usable:
            return
        if self._driver is not None and running in self._driver.browsers:
            self._driver.browsers.remove(running)
        await running.end()

    async def _end_driver(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.end()
