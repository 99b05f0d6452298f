"""The mode `pixels`: a page as a screenshot, and deeds of mouse and keyboard on points.

`env.own.actions` selects the form in which they are written (`rla_screens.screens`).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rla.envs.observation import Observation
from rla_screens.browser.driver import BrowserPage
from rla_screens.browser.episode import Acted
from rla_screens.browser.expert_rules import expert_deed
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.pixel_commands import page_grid, pixel_commands
from rla_screens.browser.pixel_expert import element_clicks, pixel_action
from rla_screens.browser.scenes import PageScene
from rla_screens.browser.state import PageState, state_key
from rla_screens.screens.deeds import Motion, Point, ScreenDeed, pixel_of
from rla_screens.screens.forms import deed_of_action
from rla_screens.screens.short import grid_clicks

SEEN = "screen"  # the entire text of observations after the first


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelView:
    """`rla_screens.browser.episode.BrowserView`."""

    own: BrowserParams

    async def show(self, page: BrowserPage, state: PageState, scene: PageScene, *, first: bool) -> Observation:
        seen = _blank_png(self.own.width, self.own.height) if scene.blank else await page.screenshot()
        return Observation(
            text=scene.instruction if first else SEEN,
            commands=pixel_commands(self.own, state),
            images=(seen,),
            place="{} {}".format(*state_key(state)),
        )

    async def act(self, page: BrowserPage, state: PageState, scene: PageScene, action: str) -> Acted:
        deed = deed_of_action(action)
        if deed is None:
            return Acted(understood=False)
        await _do_on_page(page, deed, self.own)
        return Acted(ended=deed.motion is Motion.DONE)

    def expert(self, state: PageState, scene: PageScene) -> str:
        return pixel_action(expert_deed(scene.page, state), state, self.own)

    def mistakes(self, state: PageState, shown: Sequence[str]) -> Sequence[str]:
        """All commands except clicks, and the clicks on elements, because most cells have nothing to click on."""
        beside = set(grid_clicks(page_grid(self.own))) - element_clicks(state, self.own)
        return [one for one in shown if one not in beside]


async def _do_on_page(page: BrowserPage, deed: ScreenDeed, own: BrowserParams) -> None:
    """Carry out the deed with the mouse and the keyboard. Raises as `BrowserPage` does."""
    match deed.motion:
        case Motion.TYPE:
            await page.type_text(deed.text)
        case Motion.PRESS:
            await page.press(*deed.keys)
        case Motion.KEY_DOWN | Motion.KEY_UP:
            for key in deed.keys:
                await page.key(key, down=deed.motion is Motion.KEY_DOWN)
        case Motion.WAIT:
            await page.pass_time(deed.wait)
        case Motion.DONE:
            pass
        case _:
            await _point_on_page(page, deed, own)


async def _point_on_page(page: BrowserPage, deed: ScreenDeed, own: BrowserParams) -> None:
    """Carry out a deed of the mouse; without a point it happens at the mouse's position."""
    resting = page.cursor or (own.width / 2, own.height / 2)
    at = _on_page(deed.at, own) if deed.at is not None else resting
    match deed.motion:
        case Motion.CLICK:
            await page.click(*at, button=deed.button, count=deed.count)
        case Motion.MOVE:
            await page.move(*at)
        case Motion.DOWN | Motion.UP:
            await page.move(*at)
            await page.button(deed.button, down=deed.motion is Motion.DOWN)
        case Motion.DRAG if deed.to is not None:
            await page.drag(at, _on_page(deed.to, own))
        case Motion.SCROLL:
            await page.scroll(*at, right=deed.right, down=deed.down)


def _on_page(point: Point, own: BrowserParams) -> tuple[int, int]:
    return pixel_of(point, own.width, own.height)


@lru_cache(maxsize=8)
def _blank_png(width: int, height: int) -> bytes:
    """A white picture, for a policy that must not see the page."""
    from PIL import Image

    sink = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(sink, format="PNG")
    return sink.getvalue()
