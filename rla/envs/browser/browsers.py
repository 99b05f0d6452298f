"""Browser processes that the episodes of a stage share, one context for each episode.

Playwright's driver, a process of its own, starts the browsers and speaks to them through pipes. When this process dies,
in whatever way, the pipes close: the driver ends with its browsers, and a watching shell removes their folder. A page
that hangs goes with its context; where the context does not close, its browser is killed, and the other episodes in it
are played again elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.envs.browser.driver import BrowserPage, PageLost, page_answering
from rla.envs.browser.pages import INSTALL, KEEPING, pages_folder
from rla.envs.browser.params import BrowserParams, browser_program
from rla.errors import UserError

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

STARTS = 3  # tries to start a browser
CLOSING_S = 20.0  # for a context, a browser or the driver to close
WORN = 400  # contexts that a browser has served when it is replaced by a new one
# Nothing is resolved and every connection goes to a closed port: pages are files.
FLAGS = (
    "--block-new-web-contents",
    "--disable-background-networking",
    "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--font-render-hinting=none",
)
SWEEP = 'cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" && sleep 0.5; done; rm -rf -- "$1"'
_SWAPPING = threading.Lock()  # of TMPDIR


@dataclass(slots=True, eq=False)
class RunningBrowser:
    """`open`: contexts that are in use; `served`: all that were."""

    browser: Browser
    pid: int
    open: int = 0
    served: int = 0

    @property
    def usable(self) -> bool:
        return self.browser.is_connected() and self.served < WORN

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


@dataclass(slots=True, eq=False)
class RunningDriver:
    """Playwright's driver with its folder for temporary files; a shell removes that once this process has ended."""

    playwright: Playwright
    manager: Any
    folder: Path
    sweeper: subprocess.Popen[bytes]
    browsers: list[RunningBrowser] = field(default_factory=list)


class BrowserPool:
    """At most `processes` browsers with `contexts` pages each. One event loop may use it. Raises UserError where no
    browser can be had.
    """

    def __init__(self, own: BrowserParams) -> None:
        self.own, self.folder = own, pages_folder(own.folder)
        self.lost = 0  # pages that hung or died
        self._program = browser_program(own)
        self._places = asyncio.Semaphore(own.processes * own.contexts)
        self._starting = asyncio.Lock()
        self._driver: RunningDriver | None = None
        self._of: dict[BrowserPage, RunningBrowser] = {}
        self._ending = set[asyncio.Task[None]]()

    def begins_again(self, page: str) -> bool:
        """Whether a page that is open may begin another episode without being loaded: it keeps nothing of the last."""
        return page not in KEEPING and not self.own.folder

    async def take(self) -> BrowserPage:
        """A page in a new context; waits for a place. Raises UserError."""
        await self._places.acquire()
        try:
            return await self._opened()
        except BaseException:
            self._places.release()
            raise

    async def give(self, page: BrowserPage) -> None:
        """End a page with its context, and hand its place back."""
        await self._ended(page)
        self._places.release()

    def release(self, page: BrowserPage) -> None:
        """The same in the background."""
        task = asyncio.get_running_loop().create_task(self.give(page))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def replaced(self, page: BrowserPage) -> BrowserPage:
        """A new page for the place of one that is lost. Raises UserError."""
        self.lost += 1
        await self._ended(page)
        return await self._opened()

    def running(self) -> list[tuple[BrowserPage, RunningBrowser]]:
        """The pages that are in use, each with its browser."""
        return list(self._of.items())

    async def close(self) -> None:
        """End everything that was started. Episodes must be closed before."""
        await asyncio.gather(*self._ending, return_exceptions=True)
        for page in list(self._of):
            await self._ended(page)
        async with self._starting:
            await self._end_driver()

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
                return page
            except PageLost as lost:
                reason = str(lost)
                if running is None:
                    async with self._starting:
                        await self._end_driver()
                else:  # other pages in it may be well: it gets no more of them
                    running.open -= 1
                    running.served = WORN
                    await self._retired(running)
        raise UserError(f"the browser {self._program} cannot be used: it {reason}; name another in env.own.executable")

    async def _browser(self) -> RunningBrowser:
        """The one with the fewest pages, or a new one."""
        if self._driver is None:
            self._driver = await self._started()
        usable = [one for one in self._driver.browsers if one.usable]
        best = min(usable, key=lambda one: one.open, default=None)
        if best is not None and (best.open == 0 or len(usable) >= self.own.processes):
            return best
        async with page_answering(self.own.reset_s):
            browser = await self._driver.playwright.chromium.launch(
                executable_path=self._program,
                args=list(FLAGS),
                chromium_sandbox=os.geteuid() != 0,  # root has none: Chromium refuses to start
            )
            session = await browser.new_browser_cdp_session()
            found = await session.send("SystemInfo.getProcessInfo")
        pid = next(one["id"] for one in found["processInfo"] if one["type"] == "browser")
        self._driver.browsers.append(RunningBrowser(browser, pid))
        return self._driver.browsers[-1]

    async def _started(self) -> RunningDriver:
        try:
            from playwright.async_api import async_playwright
        except ImportError:
            raise UserError(f"env.name: browser needs playwright; install it with {INSTALL}") from None
        folder = Path(tempfile.mkdtemp(prefix="rla-browser-"))
        sweeper = subprocess.Popen(
            ["/bin/sh", "-c", SWEEP, "sh", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with temporary_files_in(folder):
                manager = async_playwright()
                async with page_answering(self.own.reset_s):
                    playwright = await manager.start()
        except BaseException:
            swept(sweeper, folder)
            raise
        return RunningDriver(playwright, manager, folder, sweeper)

    async def _retired(self, running: RunningBrowser) -> None:
        """End a browser that has no page and shall get none."""
        if running.open or running.usable:
            return
        if self._driver is not None and running in self._driver.browsers:
            self._driver.browsers.remove(running)
        try:
            async with page_answering(CLOSING_S):
                await running.browser.close()
        except PageLost:
            pass
        running.kill()

    async def _end_driver(self) -> None:
        driver, self._driver = self._driver, None
        if driver is None:
            return
        pids = [pid for one in driver.browsers if (pid := driver_of(one.pid))]
        for running in driver.browsers:
            with contextlib.suppress(PageLost):
                async with page_answering(CLOSING_S):
                    await running.browser.close()
            running.kill()
        try:
            async with page_answering(CLOSING_S):
                await driver.playwright.stop()
        except PageLost:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        swept(driver.sweeper, driver.folder)


@contextlib.contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """Processes that are started meanwhile keep their temporary files there."""
    tempfile.gettempdir()  # is remembered: this process keeps its own
    with _SWAPPING:
        before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before


def swept(sweeper: subprocess.Popen[bytes], folder: Path) -> None:
    """Remove the folder and let the shell go."""
    sweeper.kill()
    if sweeper.stdin is not None:
        sweeper.stdin.close()
    sweeper.wait()
    shutil.rmtree(folder, ignore_errors=True)


def driver_of(pid: int) -> int | None:
    """The process below this one that a browser descends from; there may be a shell between. None where it is gone."""
    above = parent_of(pid)
    while above is not None and above != os.getpid():
        pid, above = above, parent_of(above)
    return pid if above is not None else None


def parent_of(pid: int) -> int | None:
    """The process that started a process; None where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
