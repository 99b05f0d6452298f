"""What the reader finds on a page: its elements in the order of the document, and how the episode stands.

The page is not trusted: whatever comes from it is checked here, and cut to what a page of this kind may hold.
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
FARTHEST = 1e8  # pixels from the corner of the viewport: Chromium's own boxes end before
WRONG = (KeyError, TypeError, ValueError, AttributeError, OverflowError)  # the last by int() of an infinite number
MARKED = ("checkbox", "radio", "tab")  # what may be on or off
TEXTS = ("role", "text", "tag", "id", "classes", "value", "kind", "color", "sign")
ON = frozenset({"clicked", "selected", "active", "highlight", "on", "highlighted"})  # classes
TYPED = ("textbox", "textarea")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageElement:
    """One element, or a piece of text between elements.

    `ref`: its number in this episode, from 1; 0 for a piece of text. `role`: `button`, `link`, `textbox`, `textarea`,
    `checkbox`, `radio`, `select`, `tab`, `slider`, `image`, `item` (something else that listens to the mouse), or the
    name of a shape in a drawing; empty for a piece of text. `text`: its label; `sign`: the id or class of what has
    none, such as an icon. `kind`: the type of a form field.
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
    """`utterance`: what the page asks for. `reward`: the raw reward, without the part that depends on time."""

    utterance: str
    elements: tuple[PageElement, ...]
    done: bool = False
    ready: bool = True
    reward: float = 0.0

    def element(self, ref: int) -> PageElement | None:
        return next((one for one in self.elements if ref and one.ref == ref), None)

    def look(self) -> str:
        """Of what is seen: the digest, and where elements stand, to LOOK pixels, in which colours."""
        seen = [[round(side / LOOK) for side in one.box] + [one.color] for one in self.elements]
        return hashlib.sha256(json.dumps([self.digest(), seen]).encode()).hexdigest()[:16]

    def digest(self) -> str:
        """Of the utterance and the elements, and not of where they stand: fonts differ from machine to machine."""
        told = [
            [one.ref, one.role, one.name, one.is_on, one.value, one.checked, one.disabled, one.options, one.chosen]
            for one in self.elements
        ]
        return hashlib.sha256(json.dumps([self.utterance, told]).encode()).hexdigest()[:16]


def state_key(state: PageState) -> tuple[str, int]:
    """What the page shows, and which element has the focus: typing depends on it."""
    return state.digest(), next((one.ref for one in state.elements if one.focused), 0)


def page_state(found: Any) -> PageState:
    """What the reader returned, as a state. Raises EnvironmentFailure for anything that it never returns."""
    try:
        reward = float(found["reward"])
        return PageState(
            utterance=plain_line(found["utterance"], LONGEST_UTTERANCE),
            elements=tuple(map(page_element, found["lines"][:MOST_ELEMENTS])),
            done=found["done"] is True,
            ready=found["ready"] is True,
            reward=reward if math.isfinite(reward) else 0.0,
        )
    except WRONG as error:
        raise EnvironmentFailure(f"the page cannot be read: {type(error).__name__}") from None


def page_point(found: Any) -> tuple[float, float]:
    """Where the reader says that an element is. Raises EnvironmentFailure for what is no point."""
    try:
        x, y = map(pixels, found)
    except WRONG as error:
        raise EnvironmentFailure(f"an element of the page has no place: {type(error).__name__}") from None
    return x, y


def pixels(found: Any) -> float:
    """A place or a size. Raises ValueError where no page is so large, or TypeError."""
    number = float(found)
    if not abs(number) <= FARTHEST:  # neither is nan
        raise ValueError(f"{number} pixels")
    return number


def page_element(found: Mapping[str, Any]) -> PageElement:
    """One line of the reader. Raises one of WRONG."""
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
    """A text of a page on one line, without halves of surrogate pairs and without control characters."""
    shown = "".join(sign if sign.isprintable() else " " for sign in str(text)[:longest])
    return " ".join(shown.encode("utf-8", "replace").decode().split())
