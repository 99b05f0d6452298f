"""Playwright's driver, a separate process that starts browsers, with one folder for all their temporary files.

If this process dies, in any way, the pipes to the driver close: the driver ends with its browsers, and a watching shell
removes the folder. Every process below the driver keeps its temporary files in the folder, which identifies processes
that did not end by themselves.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rla.errors import UserError
from rla_screens.browser.driver import PageLost, page_answering
from rla_screens.browser.pages import INSTALL
from rla_screens.screens.starts import process_start

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

CLOSING_S = 20.0  # for a context, a browser or the driver to close
WORN = 400  # contexts after which a browser is replaced by a new one
SWEEP = 'cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" && sleep 0.5; done; rm -rf -- "$1"'
DRIVER = b"run-driver"  # in the driver's command line; a browser's names its folder
_SWAPPING = threading.Lock()  # of TMPDIR


@dataclass(slots=True, eq=False)
class RunningBrowser:
    """`started`: the start time of the process, so that a later process with the same id is not killed. `open`:
    contexts in use. `served`: contexts in total.
    """

    browser: Browser
    pid: int
    started: int
    open: int = 0
    served: int = 0

    @property
    def usable(self) -> bool:
        return self.browser.is_connected() and self.served < WORN

    def kill(self) -> None:
        if self.started and process_start(self.pid) == self.started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Close it; if its process still exists afterwards, kill it."""
        try:
            await _close_browser(self.browser)
        finally:
            self.kill()


@dataclass(slots=True, eq=False)
class RunningDriver:
    """The driver with its folder, which `sweeper`, a shell, removes once this process has ended."""

    playwright: Playwright
    folder: Path
    sweeper: subprocess.Popen[bytes]
    browsers: list[RunningBrowser] = field(default_factory=list)

    async def end(self) -> None:
        """End it with everything that it has started, and remove the folder, even if the call is cancelled."""
        try:
            for running in self.browsers:
                await running.end()
            with contextlib.suppress(PageLost):
                async with page_answering(CLOSING_S):
                    await self.playwright.stop()
        finally:
            swept(self.sweeper, self.folder)


async def _close_browser(browser: Browser) -> None:
    """Close a browser, and ignore failures."""
    with contextlib.suppress(PageLost):
        async with page_answering(CLOSING_S):
            await browser.close()


async def launched_browser(
    playwright: Playwright, program: str, flags: Sequence[str], *, longest_s: float
) -> RunningBrowser:
    """Raises PageLost, after closing the browser, if it does not start or does not report its process id."""
    async with page_answering(longest_s):
        browser = await playwright.chromium.launch(
            executable_path=program,
            args=list(flags),
            chromium_sandbox=os.geteuid() != 0,  # Chromium refuses to start with a sandbox as root
            timeout=longest_s * 1000,  # after this time the driver ends the attempt
        )
    try:
        async with page_answering(longest_s):
            session = await browser.new_browser_cdp_session()
            found = await session.send("SystemInfo.getProcessInfo")
        pid = next((one["id"] for one in found["processInfo"] if one["type"] == "browser"), None)
        if pid is None:
            raise PageLost("does not say which process it is")
    except BaseException:
        await _close_browser(browser)
        raise
    return RunningBrowser(browser, pid, process_start(pid))


async def started_driver(*, longest_s: float) -> RunningDriver:
    """Raises UserError without playwright or without space for files, and PageLost if the driver does not start."""
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        raise UserError(f"env.name: browser needs playwright; {INSTALL}") from None
    folder = new_folder()
    sweeper = subprocess.Popen(
        ["/bin/sh", "-c", SWEEP, "sh", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        with temporary_files_in(folder):
            async with page_answering(longest_s):
                playwright = await async_playwright().start()
    except BaseException:
        swept(sweeper, folder)
        raise
    return RunningDriver(playwright, folder, sweeper)


def new_folder() -> Path:
    """An empty folder for temporary files. Raises UserError if there is no space for it."""
    try:
        return Path(tempfile.mkdtemp(prefix="rla-browser-"))
    except OSError as error:
        said = error.strerror or str(error)
        raise UserError(f"no place for the temporary files of a browser ({said}); make room, or set TMPDIR") from None


@contextlib.contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """Processes started inside keep their temporary files in `folder`."""
    tempfile.gettempdir()  # cached first, so that this process keeps its own
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
    """Kill the remaining processes, remove their folder and release the shell."""
    for pid in processes_of(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(sweeper.pid, signal.SIGKILL)  # and the program that it waits for
    if sweeper.stdin is not None:
        sweeper.stdin.close()
    sweeper.wait()
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(folder: Path) -> list[int]:
    """The driver and the browsers whose temporary files are in this folder. Children of a browser end with it."""
    found, name = list[int](), os.fsencode(folder)
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            kept_there = b"TMPDIR=" + name in (entry / "environ").read_bytes().split(b"\0")
            said = (entry / "cmdline").read_bytes()
            # Another thread may start a process at the same time that inherits the folder but is not one of these.
            if kept_there and (DRIVER in said or name in said):
                found.append(int(entry.name))
    return found
