"""How the expert's rules find elements, and parse an utterance."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rla_screens.browser.deeds import DeedKind, PageDeed
from rla_screens.browser.state import PageElement, PageState

QUOTED = re.compile(r'"([^"]+)"')
ORDINAL = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)\b")
PUNCTUATION = ".,;:!?"


def quotes(state: PageState) -> list[str]:
    """The quoted parts of the utterance."""
    return [text.strip() for text in QUOTED.findall(state.utterance)]


def first_quote(state: PageState) -> str:
    return next(iter(quotes(state)), "")


def ordinal(state: PageState) -> int:
    """The first ordinal of the utterance as an index, `3rd` as 2; 0 if it has none."""
    found = ORDINAL.search(state.utterance)
    return int(found[1]) - 1 if found else 0


def of_role(state: PageState, *roles: str) -> list[PageElement]:
    """Enabled elements with one of these roles; without roles, all elements that have a number."""
    return [one for one in state.elements if one.ref and not one.disabled and (not roles or one.role in roles)]


def element_named(state: PageState, *names: str, roles: Sequence[str] = ()) -> PageElement | None:
    """The first element with exactly one of these names, else ignoring case."""
    there = of_role(state, *roles)
    exact = next((one for name in names for one in there if one.name == name), None)
    wanted = [name.lower() for name in names]
    return exact or next((one for name in wanted for one in there if one.name.lower() == name), None)


def click(element: PageElement | None) -> PageDeed | None:
    return None if element is None else PageDeed(kind=DeedKind.CLICK, ref=element.ref)


def hover(element: PageElement | None) -> PageDeed | None:
    return None if element is None else PageDeed(kind=DeedKind.HOVER, ref=element.ref)


def press_button(state: PageState, *names: str) -> PageDeed | None:
    """Click the element with one of these names, whatever its role."""
    return click(element_named(state, *names))


def submit(state: PageState) -> PageDeed | None:
    return press_button(state, "Submit", "Login", "Search", "Go!", "OK", "Ok")


def fill(element: PageElement | None, text: str) -> PageDeed | None:
    """Type the text, unless the element holds it already."""
    if element is None or not text or element.value == text:
        return None
    return PageDeed(kind=DeedKind.TYPE, ref=element.ref, text=text)


def select(element: PageElement | None, option: str) -> PageDeed | None:
    """Choose the option, unless it is chosen already."""
    if element is None or option not in element.options or option in element.chosen:
        return None
    return PageDeed(kind=DeedKind.SELECT, ref=element.ref, text=option)


def at(elements: Sequence[PageElement], index: int) -> PageElement | None:
    return elements[index] if 0 <= index < len(elements) else None


def first(*deeds: PageDeed | None) -> PageDeed | None:
    """The first deed that is left to do."""
    return next((deed for deed in deeds if deed is not None), None)


def text_between(text: str, before: str, after: str) -> str:
    """The part of a text between two others; empty if they do not occur."""
    _, found, rest = text.partition(before)
    inside, ended, _ = rest.partition(after)
    return inside.strip() if found and ended else ""


def after_label(state: PageState, label: str, *, roles: Sequence[str] = ()) -> PageElement | None:
    """The first element with one of these roles (without roles: the next text) after a label; a colon after the label
    is ignored.
    """
    wanted, seen = label.lower().rstrip(":"), False
    for one in state.elements:
        if seen and (one.role in roles if roles else not one.role):
            return one
        seen = seen or (not one.role and one.text.lower().rstrip(":") == wanted)
    return None
