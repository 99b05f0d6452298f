"""Deeds on a page, independent of how a mode writes them: a verb and an element.

Experts and text commands refer to elements, pixel actions refer to points. Both become a `PageDeed`, and `perform`
carries it out with the mouse and the keyboard.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from rla_screens.browser.driver import BrowserPage
from rla_screens.browser.state import PageElement, PageState

CLOCK = re.compile(r"(\d{1,2}):(\d\d) ([AP])M")


class DeedKind(StrEnum):
    """The verbs of commands."""

    CLICK = "click"
    HOVER = "hover"
    TYPE = "type"
    SELECT = "select"
    PRESS = "press"
    DRAG = "drag"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDeed:
    """`ref`: number of the element. `text`: the text to type, the option to select or the key to press. `to`: the
    element to drag to. `DONE` ends the episode.
    """

    kind: DeedKind
    ref: int = 0
    text: str = ""
    to: int = 0


async def perform(page: BrowserPage, state: PageState, deed: PageDeed) -> bool:
    """Scroll to the element and carry out the deed. Returns whether its elements exist. Raises as `BrowserPage`
    does.
    """
    if deed.kind is DeedKind.PRESS:
        await page.press(deed.text)
        return True
    if deed.kind is DeedKind.DONE:
        return True
    element = state.element(deed.ref)
    if element is None:
        return False
    if deed.kind is DeedKind.TYPE:
        return element.takes_text and await page.fill(deed.ref, keys_of(element, deed.text))
    if deed.kind is DeedKind.SELECT:
        return await page.choose(deed.ref, deed.text)
    end = await page.reach(deed.to) if deed.kind is DeedKind.DRAG else None
    at = await page.reach(deed.ref)
    if at is None or (deed.kind is DeedKind.DRAG and end is None):
        return False
    if end is not None:
        await page.drag(at, end)
    elif deed.kind is DeedKind.HOVER:
        await page.move(*at)
    else:
        await page.click(*at)
    return True


def keys_of(element: PageElement, text: str) -> str:
    """The keys that enter a text. In a field for times white space would open a picker, and hours have two digits."""
    found = CLOCK.fullmatch(text)
    if element.kind != "time" or found is None:
        return text
    return f"{int(found[1]):02d}{found[2]}{found[3]}M"
