"""Names of the colours that a browser computes, such as `rgb(255, 0, 0)`."""

from __future__ import annotations

import re

RGB = re.compile(r"rgba?\((\d{1,3}), (\d{1,3}), (\d{1,3})(?:, ([\d.]{1,8}))?\)")
NAMED = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (128, 128, 128),
    "red": (255, 0, 0),
    "green": (0, 128, 0),
    "lime": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "magenta": (255, 0, 255),
    "cyan": (0, 255, 255),
    "orange": (255, 165, 0),
    "pink": (255, 192, 203),
    "purple": (128, 0, 128),
    "brown": (165, 42, 42),
    "olive": (128, 128, 0),
    "maroon": (128, 0, 0),
    "navy": (0, 0, 128),
    "teal": (0, 128, 128),
}


def color_name(computed: str) -> str:
    """The nearest name; empty if `computed` is transparent or not a colour."""
    found = RGB.fullmatch(computed)
    if found is None or (found[4] is not None and float(found[4].rstrip(".") or 0) == 0):
        return ""
    given = [int(part) for part in found.groups()[:3]]
    return min(NAMED, key=lambda name: sum((a - b) ** 2 for a, b in zip(NAMED[name], given, strict=True)))
