"""One page of a browser, as an episode drives it: start it with a seed, read it, and use mouse and keyboard on it.

A page begins in its own context. Its clock advances only by `step_ms` with each action, so timers fire at the same
moment of every episode. Requests are refused except for files in the folder of pages, and once an episode has begun,
the page cannot be left. Dialogs are dismissed; downloads, pop-ups and workers are blocked.

Source of the four calls that start and end an episode: `core/core.js` of MiniWoB++.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import mimetypes
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

from rla_screens.browser.state import PageState, page_point, page_state

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Route

READER = Path(__file__).with_name("reader.js")
CALL = '(given) => window[Symbol.for("rla.reader")][given[0]](...given[1])'
INSTALLED, BEGIN = "2020-01-01T12:00:00Z", "2020-01-01T13:00:00Z"  # on the pages' clock, which runs until it is paused
DOCUMENTS = re.compile(r"\.(?:x?html?|xht|svgz?|xml)(?:[?#]|$)")  # in the folder; other addresses are refused anyway
# Frames that a page makes itself (blob:, data:, srcdoc) inherit it. `reader.js` removes the constructors as well.
NO_WORKERS = {"Content-Security-Policy": "worker-src 'none'"}
TICKS = 20  # number of times that a page which is not ready gets `step_ms`
NONE: Mapping[str, int] = {}
Button = Literal["left", "middle", "right"]
CURSOR = ((0, 0), (0, 12), (3, 9), (5, 13), (7, 12), (5, 8), (9, 8))  # an arrow, in pixels from its tip


class PageLost(Exception):
    """A page, its browser or the driver hangs, is gone, or does not answer as it should."""


@asynccontextmanager
async def page_answering(seconds: float) -> AsyncIterator[None]:
    """Raises PageLost if the block takes longer, and for every error of the driver."""
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise PageLost(f"did not answer within {seconds:g} s") from None
    except Error as error:
        raise PageLost(f"failed ({error.message.splitlines()[0][:200]})") from None


def _own_file(folder: Path) -> re.Pattern[str]:
    """A pattern for addresses to refuse: all but files of `folder`, and data and blobs that a page makes itself."""
    return re.compile(f"^(?!{re.escape(folder.as_uri())}/|data:|blob:|about:)")


class BrowserPage:
    """A page in a context. Methods except `opened` raise PageLost or playwright's own errors: see `page_answering`."""

    def __init__(self, context: BrowserContext, page: Page, folder: Path, *, step_ms: int) -> None:
        self.context, self._page, self._step_ms = context, page, step_ms
        self._outside = _own_file(folder)
        self._begun = False
        self.cursor: tuple[float, float] | None = None

    @classmethod
    async def opened(cls, context: BrowserContext, folder: Path, *, step_ms: int) -> BrowserPage:
        """An empty page of a new context that refuses requests outside `folder`."""
        await context.add_init_script(path=READER)
        page = await context.new_page()
        made = cls(context, page, folder, step_ms=step_ms)
        await context.route(made._outside, refused)
        await page.route(DOCUMENTS, made._document)
        await page.clock.install(time=INSTALLED)
        await page.clock.pause_at(BEGIN)
        return made

    async def start(self, file: Path, seed: int, settings: Mapping[str, int] = NONE) -> PageState:
        """Load the file and begin the episode of a seed. `settings`: values for the page's own variables."""
        self._begun = False
        await self._page.goto(file.as_uri(), wait_until="load")
        self._begun = True
        return await self.restart(seed, settings)

    async def restart(self, seed: int, settings: Mapping[str, int] = NONE) -> PageState:
        """Begin the episode of a seed without reloading the page. Some pages keep state of the episode before."""
        if self.cursor is not None:
            await self._page.mouse.move(0, 0)
            self.cursor = None
        await self._call("start", seed, dict(settings))
        await self.pass_time()
        state = await self.read()
        for _ in range(TICKS):
            if state.ready:
                return state
            await self.pass_time()
            state = await self.read()
        raise PageLost("was never ready")

    async def read(self) -> PageState:
        return page_state(await self._call("read"))

    async def pass_time(self, ms: int | None = None) -> None:
        """Advance the page's clock by `ms`, or by `step_ms`."""
        await self._page.clock.run_for(self._step_ms if ms is None else ms)

    async def reach(self, ref: int) -> tuple[float, float] | None:
        """The middle of an element, scrolled into view; None if it is gone."""
        found = await self._call("reach", ref)
        return None if found is None else page_point(found)

    async def move(self, x: float, y: float) -> None:
        self.cursor = (x, y)
        await self._page.mouse.move(x, y)

    async def click(self, x: float, y: float, *, button: Button = "left", count: int = 1) -> None:
        self.cursor = (x, y)
        await self._page.mouse.click(x, y, button=button, click_count=count)

    async def drag(self, start: tuple[float, float], end: tuple[float, float], *, stops: int = 4) -> None:
        """Press the left button at one point and release it at another, with `stops` mouse moves in between."""
        await self._page.mouse.move(*start)
        await self._page.mouse.down()
        await self._page.mouse.move(*end, steps=stops)
        await self._page.mouse.up()
        self.cursor = end

    async def button(self, button: Button, *, down: bool) -> None:
        """Press or release a mouse button at the mouse's position."""
        await (self._page.mouse.down(button=button) if down else self._page.mouse.up(button=button))

    async def key(self, key: str, *, down: bool) -> None:
        """Press and hold a key, or release it."""
        await (self._page.keyboard.down(key) if down else self._page.keyboard.up(key))

    async def scroll(self, x: float, y: float, *, right: float = 0.0, down: float = 0.0) -> None:
        """Turn the wheel over a point, in pixels, and wait until the page is redrawn."""
        await self.move(x, y)
        await self._page.mouse.wheel(right, down)
        await self._call("drawn")

    async def type_text(self, text: str) -> None:
        """Type into the focused element, key by key."""
        await self._page.keyboard.type(text)

    async def press(self, *keys: str) -> None:
        """Press one key, or several together such as Control and A, by playwright's names."""
        await self._page.keyboard.press("+".join(keys))

    async def fill(self, ref: int, text: str) -> bool:
        """Focus a field and overwrite its content. Returns whether the field exists."""
        if not await self._call("clear", ref):
            return False
        await self.type_text(text)
        return True

    async def choose(self, ref: int, option: str) -> bool:
        """Choose an option of a list by its text. Returns whether it exists."""
        return bool(await self._call("choose", ref, option))

    async def screenshot(self, *, cursor: bool = True) -> bytes:
        """The viewport as a PNG file, with an arrow at the last position of the mouse."""
        png = await self._page.screenshot(type="png", animations="disabled")
        return _with_cursor(png, self.cursor) if cursor and self.cursor is not None else png

    async def _call(self, name: str, *given: Any) -> Any:
        return await self._page.evaluate(CALL, [name, list(given)])

    async def _document(self, route: Route) -> None:
        """After the start, navigation is aborted. Before, documents are loaded with a policy that forbids workers."""
        address = route.request.url
        if not route.request.is_navigation_request():
            return await route.fallback()
        if self._begun:
            return await refused(route)
        if not address.startswith("file:") or self._outside.match(address):
            return await route.fallback()
        file = Path(os.path.normpath(url2pathname(urlsplit(address).path)))
        if not self._outside.match(file.as_uri()):
            with contextlib.suppress(OSError):
                kind = mimetypes.guess_type(file.name)[0] or "text/html"
                body = await asyncio.to_thread(file.read_bytes)
                return await route.fulfill(body=body, headers={"Content-Type": kind, **NO_WORKERS})
        return await refused(route)


async def refused(route: Route) -> None:
    """Abort requests that leave the folder of pages. An aborted navigation leaves the page as it is; other errors would
    replace it.
    """
    await route.abort("aborted")


def _with_cursor(png: bytes, at: Sequence[float]) -> bytes:
    """The picture with an arrow whose tip is at a point."""
    from PIL import Image, ImageDraw

    with Image.open(io.BytesIO(png)) as image:
        drawn = image.convert("RGB")
    points = [(at[0] + x, at[1] + y) for x, y in CURSOR]
    ImageDraw.Draw(drawn).polygon(points, fill="white", outline="black")
    out = io.BytesIO()
    drawn.save(out, format="PNG")
    return out.getvalue()
