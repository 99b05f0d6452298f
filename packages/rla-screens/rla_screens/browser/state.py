"""The state of a page as the reader returns it: elements in the order of the document, and the episode's status.

The page is untrusted: everything that it sends is checked here, and cut to the limits for such pages.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rla.envs.observation import EnvironmentFailure

MOST_ELEMENTS, LONGEST_TEXT, LONGEST_UTTERANCE = 400, 300, 2000
LOOK = 5.0
FARTHEST = 1e8  # pixels from the corner of the viewport; Chromium's own boxes end before
# the last is raised by int() of an infinite number
WRONG = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
MARKED = ("checkbox", "radio", "tab")  # roles that can be on or off
TEXTS = ("role", "text", "tag", "id", "classes", "value", "kind", "color", "sign")
ON = frozenset({"clicked", "selected", "active", "highlight", "on", "highlighted"})  # CSS classes
TYPED = ("textbox", "textarea")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageElement:
    """One element, or a piece of text between elements.

    `ref`: its number in this episode, from 1; 0 for a piece of text. `role`: `button`, `link`, `textbox`, `textarea`,
    `checkbox`, `radio`, `select`, `tab`, `slider`, `image`, `item` (anything else that listens to the mouse), or the
    name of a shape in a drawing; empty for a piece of text. `text`: its label; `sign`: its id or class if it has no
    label, such as an icon. `kind`: the type of a form field.
    `box`: x, y, width and height in pixels of the viewport.
    """

    ref: int
    role: str
    text: str
    tag: str = ""
    id: str = ""
    classes: str = ""
    value: str = ""
    checked: bool | None = None
    focused: bool = False
    disabled: bool = False
    readonly: bool = False
    kind: str = ""
    sign: str = ""
    options: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    color: str = ""
    box: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    @property
    def middle(self) -> tuple[float, float]:
        x, y, width, height = self.box
        return x + width / 2, y + height / 2

    @property
    def name(self) -> str:
        return self.text or self.sign

    @property
    def is_on(self) -> bool:
        """Whether the page marks it as chosen."""
        return self.checked is True or not ON.isdisjoint(self.classes.lower().split())

    @property
    def takes_text(self) -> bool:
        return self.role in TYPED and not self.disabled and not self.readonly


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """`utterance`: the page's instruction. `reward`: the raw reward, without the part that depends on time."""

    utterance: str
    elements: tuple[PageElement, ...]
    done: bool = False
    ready: bool = True
    reward: float = 0.0

    def element(self, ref: int) -> PageElement | None:
        return next((one for one in self.elements if ref and one.ref == ref), None)

    def look(self) -> str:
        """Digest of the appearance: the state's digest, and the elements' colours and places, rounded to LOOK
        pixels.
        """
        seen = [[round(side / LOOK) for side in one.box] + [one.color] for one in self.elements]
        return hashlib.sha256(json.dumps([self.digest(), seen]).encode()).hexdigest()[:16]

    def digest(self) -> str:
        """Digest of the utterance and the elements, but not of their places, because fonts differ between machines."""
        told = [
            [one.ref, one.role, one.name, one.is_on, one.value, one.checked, one.disabled, one.options, one.chosen]
            for one in self.elements
        ]
        return hashlib.sha256(json.dumps([self.utterance, told]).encode()).hexdigest()[:16]


def state_key(state: PageState) -> tuple[str, int]:
    """The page's content and the focused element, which matters because typing depends on it."""
    return state.digest(), next((one.ref for one in state.elements if one.focused), 0)


def page_state(found: Any) -> PageState:
    """The reader's result as a state. Raises EnvironmentFailure for anything that the reader never returns."""
    try:
        reward = float(found["reward"])
        return PageState(
            utterance=plain_line(found["utterance"], LONGEST_UTTERANCE),
            elements=tuple(map(_page_element, found["lines"][:MOST_ELEMENTS])),
            done=found["done"] is True,
            ready=found["ready"] is True,
            reward=reward if math.isfinite(reward) else 0.0,
        )
    except WRONG as error:
        raise EnvironmentFailure(f"the page cannot be read: {type(error).__name__}") from None


def page_point(found: Any) -> tuple[float, float]:
    """The place of an element. Raises EnvironmentFailure if `found` is not a point."""
    try:
        x, y = map(pixels, found)
    except WRONG as error:
        raise EnvironmentFailure(f"an element of the page has no place: {type(error).__name__}") from None
    return x, y


def pixels(found: Any) -> float:
    """A coordinate or a size. Raises ValueError if it is larger than any page, or TypeError."""
    number = float(found)
    if not abs(number) <= FARTHEST:  # nan fails this comparison, too
        raise ValueError(f"{number} pixels")
    return number


def _page_element(found: Mapping[str, Any]) -> PageElement:
    """One entry of the reader's result. Raises one of WRONG."""
    x, y, width, height = map(pixels, found["box"])
    texts = {name: plain_line(found[name]) for name in TEXTS}
    checked = found["checked"]
    return PageElement(
        ref=int(found["ref"]),
        checked=checked if isinstance(checked, bool) and texts["role"] in MARKED else None,
        focused=found["focused"] is True,
        disabled=found["disabled"] is True,
        readonly=found["readonly"] is True,
        options=tuple(plain_line(one) for one in found["options"][:MOST_ELEMENTS]),
        chosen=tuple(plain_line(one) for one in found["chosen"][:MOST_ELEMENTS]),
        box=(x, y, width, height),
        **texts,
    )


def plain_line(text: Any, longest: int = LONGEST_TEXT) -> str:
    """A text of a page on one line, without lone surrogates and control characters."""
    shown = "".join(sign if sign.isprintable() else " " for sign in str(text)[:longest])
    return " ".join(shown.encode("utf-8", "replace").decode().split())
