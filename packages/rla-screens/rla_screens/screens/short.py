"""Deeds in a few words for small models: each word and each number is one token of a tokenizer of words.

    click 46 38     drag 9 11 to 46 38     type "Ada"     press Enter     scroll down     done

Places are in hundredths of the screen, from 0 to 99, because numbers of two digits are one token of every small
tokenizer here. On a grid they are the middles of cells, so all clicks that a small model may choose from can be
enumerated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rla_screens.screens.deeds import LAST, LONGEST_TYPED, Motion, Point, ScreenDeed
from rla_screens.screens.keys import chord_of

LONGEST = LONGEST_TYPED + 20
WHEEL = 100  # pixels of one turn
TENTH = (LAST + 1) // 100  # points per hundredth
POINT = r"(\d{1,2}) (\d{1,2})"
CLICK = re.compile(rf"click {POINT}")
DRAG = re.compile(rf"drag {POINT} to {POINT}")
TYPE = re.compile(r'type "([^\n]+)"')
PRESS = re.compile(r"press (\S{1,30})")
PLAIN = {
    "scroll up": ScreenDeed(motion=Motion.SCROLL, down=-WHEEL),
    "scroll down": ScreenDeed(motion=Motion.SCROLL, down=WHEEL),
    "done": ScreenDeed(motion=Motion.DONE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The points that small models use: the middles of `columns` x `rows` cells."""

    columns: int
    rows: int

    def point(self, column: int, row: int) -> Point:
        return _said_point(_middle_of(column, self.columns), _middle_of(row, self.rows))

    def nearest(self, point: Point) -> Point:
        """The middle of the cell that contains a point."""
        x, y = point
        return self.point(x * self.columns // (LAST + 1), y * self.rows // (LAST + 1))

    def points(self) -> tuple[Point, ...]:
        """All points, row by row."""
        return tuple(self.point(column, row) for row in range(self.rows) for column in range(self.columns))


def _middle_of(cell: int, cells: int) -> int:
    """The middle of one of `cells` cells, between 0 and 99."""
    return (2 * cell + 1) * 100 // (2 * cells)


def _said_point(x: int, y: int) -> Point:
    """The point in the middle of a place in hundredths."""
    return TENTH * x + TENTH // 2, TENTH * y + TENTH // 2


def hundredths(point: Point) -> str:
    """The place of a point, as it is written."""
    return f"{point[0] // TENTH} {point[1] // TENTH}"


def grid_of(width: int, height: int, side: int) -> Grid:
    """The grid of a screen in pixels, with cells of about `side` pixels."""
    return Grid(columns=max(1, round(width / side)), rows=max(1, round(height / side)))


@lru_cache(maxsize=16)
def grid_clicks(grid: Grid) -> tuple[str, ...]:
    """The clicks on all points of a grid."""
    return tuple(f"click {hundredths(point)}" for point in grid.points())


def deed_of_words(text: str) -> ScreenDeed | None:
    """A deed as written above; None for every other text."""
    text = text.strip()
    if len(text) > LONGEST:
        return None
    if found := CLICK.fullmatch(text):
        return ScreenDeed(motion=Motion.CLICK, at=_said_point(int(found[1]), int(found[2])))
    if found := DRAG.fullmatch(text):
        x, y, across, below = map(int, found.groups())
        return ScreenDeed(motion=Motion.DRAG, at=_said_point(x, y), to=_said_point(across, below))
    if found := TYPE.fullmatch(text):
        return ScreenDeed(motion=Motion.TYPE, text=found[1])
    if found := PRESS.fullmatch(text):
        keys = chord_of(found[1])
        return None if keys is None else ScreenDeed(motion=Motion.PRESS, keys=keys)
    return PLAIN.get(text)


def words_of_deed(deed: ScreenDeed) -> str:
    """A deed in words. Raises ValueError if there are no words for it."""
    at, to = deed.at or (0, 0), deed.to or (0, 0)
    match deed.motion:
        case Motion.CLICK if deed.button == "left" and deed.count == 1:
            return f"click {hundredths(at)}"
        case Motion.DRAG:
            return f"drag {hundredths(at)} to {hundredths(to)}"
        case Motion.TYPE if "\n" not in deed.text:
            return f'type "{deed.text}"'
        case Motion.PRESS:
            return f"press {'+'.join(deed.keys)}"
        case Motion.SCROLL if not deed.right:
            return "scroll up" if deed.down < 0 else "scroll down"
        case Motion.DONE:
            return "done"
    raise ValueError(f"there are no short words for {deed.motion}")
