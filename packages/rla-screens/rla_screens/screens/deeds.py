"""Deeds of mouse and keyboard on a screen, and points that do not depend on the screen's size.

A point is two numbers from 0 to 999, left to right and top to bottom: 0 is the first pixel and 999 the last one, as in
Qwen2.5-VL's and Qwen3-VL's computer tools.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

LAST = 999
LONGEST_TYPED = 1000  # characters of one deed
MOST_TURNS = 10_000  # pixels of the wheel in one deed
MOST_WAIT = 60_000  # ms
Button = Literal["left", "middle", "right"]
WHOLE = re.compile(r"[+-]?\d{1,6}(?:\.\d{1,6})?")  # a number as models write it
Point = tuple[int, int]


class Motion(StrEnum):
    """The motions of mouse and keyboard."""

    MOVE = "move"
    CLICK = "click"
    DOWN = "down"
    UP = "up"
    DRAG = "drag"
    SCROLL = "scroll"
    TYPE = "type"
    PRESS = "press"
    KEY_DOWN = "key_down"
    KEY_UP = "key_up"
    WAIT = "wait"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenDeed:
    """`at`: the point to move the mouse to first; None: it stays. `to`: the end of a drag. `keys`: by the names of DOM
    events, pressed together. `right` and `down`: pixels of the wheel. `wait`: ms. `succeeded`: for DONE, the agent's
    claim.
    """

    motion: Motion
    at: Point | None = None
    to: Point | None = None
    button: Button = "left"
    count: int = 1
    text: str = ""
    keys: tuple[str, ...] = ()
    right: int = 0
    down: int = 0
    wait: int = 0
    succeeded: bool = True


def pixel_of(point: Point, width: int, height: int) -> tuple[int, int]:
    """The pixel of a point on a screen of this size."""
    x, y = point
    return round(x * (width - 1) / LAST), round(y * (height - 1) / LAST)


def point_of(x: float, y: float, width: int, height: int) -> Point:
    """The point nearest to a pixel, clipped to the screen."""
    across, below = round(x * LAST / max(1, width - 1)), round(y * LAST / max(1, height - 1))
    return min(LAST, max(0, across)), min(LAST, max(0, below))


def read_point(x: str, y: str) -> Point | None:
    """Two numbers as a model wrote them; None if one is not a number, or outside 0 to 999."""
    if WHOLE.fullmatch(x) is None or WHOLE.fullmatch(y) is None:
        return None
    across, below = round(float(x)), round(float(y))
    return (across, below) if 0 <= across <= LAST and 0 <= below <= LAST else None


def read_amount(text: str, most: int) -> int | None:
    """A whole number of at most `most`, with a sign; None for everything else."""
    if WHOLE.fullmatch(text) is None:
        return None
    amount = round(float(text))
    return amount if -most <= amount <= most else None
