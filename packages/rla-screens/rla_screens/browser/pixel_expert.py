"""The expert's deeds on elements as deeds on points: the next deed that brings its command about.

An element is clicked at a visible point that a small model could name as well. A field is clicked, emptied and typed
into in separate deeds, so that the reason for each is visible on the screen.
"""

from __future__ import annotations

from dataclasses import replace

from rla_screens.browser.deeds import DeedKind, PageDeed
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.pixel_commands import page_grid
from rla_screens.browser.state import PageElement, PageState
from rla_screens.screens.deeds import Motion, Point, ScreenDeed, pixel_of, point_of
from rla_screens.screens.forms import FORMS
from rla_screens.screens.short import WHEEL

GIVES_UP = ScreenDeed(motion=Motion.DONE, succeeded=False)


def pixel_action(deed: PageDeed, state: PageState, own: BrowserParams) -> str:
    """The next action, in the form of the parameters."""
    form = FORMS[own.actions]
    found = _screen_deed(deed, state, own)
    return form.action(replace(found, succeeded=True) if own.actions == "short" else found)


def _screen_deed(deed: PageDeed, state: PageState, own: BrowserParams) -> ScreenDeed:
    """The next deed on a screen. Option lists are not visible in screenshots, so there the expert gives up."""
    element = state.element(deed.ref)
    if deed.kind is DeedKind.PRESS:
        return ScreenDeed(motion=Motion.PRESS, keys=(deed.text,))
    if deed.kind is DeedKind.DONE:
        return ScreenDeed(motion=Motion.DONE)
    if element is None or deed.kind is DeedKind.SELECT:
        return GIVES_UP
    at = _point_within(element, own)
    if at is None:
        return ScreenDeed(motion=Motion.SCROLL, at=None, down=WHEEL if element.middle[1] > 0 else -WHEEL)
    if deed.kind is DeedKind.TYPE and element.focused:
        if element.value:
            return ScreenDeed(motion=Motion.PRESS, keys=("Backspace",))
        return ScreenDeed(motion=Motion.TYPE, text=deed.text)
    if deed.kind is DeedKind.DRAG:
        end = state.element(deed.to)
        to = None if end is None else _point_within(end, own)
        return GIVES_UP if to is None else ScreenDeed(motion=Motion.DRAG, at=at, to=to)
    return ScreenDeed(motion=Motion.CLICK, at=at)


def _point_within(element: PageElement, own: BrowserParams) -> Point | None:
    """The point on the visible part of an element that is nearest to its middle, on the grid if possible. None if the
    element is not visible.
    """
    x, y, width, height = element.box
    left, top = max(0.0, x), max(0.0, y)
    right, bottom = min(float(own.width), x + width), min(float(own.height), y + height)
    if right <= left or bottom <= top:
        return None
    middle = ((left + right) / 2, (top + bottom) / 2)
    whole = point_of(*middle, own.width, own.height)
    if own.actions != "short":
        return whole

    def within(point: Point) -> bool:
        across, below = pixel_of(point, own.width, own.height)
        return left <= across < right and top <= below < bottom

    def distance(point: Point) -> float:
        across, below = pixel_of(point, own.width, own.height)
        return abs(across - middle[0]) + abs(below - middle[1])

    grid = page_grid(own)
    return min((point for point in grid.points() if within(point)), key=distance, default=grid.nearest(whole))


def element_clicks(state: PageState, own: BrowserParams) -> set[str]:
    """Clicks on each element that is more than text; for an invisible one, the deed that scrolls to it."""
    deeds = (PageDeed(kind=DeedKind.CLICK, ref=element.ref) for element in state.elements if element.ref)
    return {pixel_action(deed, state, own) for deed in deeds}
