"""Where an action points, drawn into the picture that was seen before it. The stored file stays as it is."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from rla.pictures.vision import decoded_picture

Place = tuple[float, float]  # shares of width and height
INK, EDGE = (230, 0, 70), (255, 255, 255)
SMALLEST = 4.0  # pixels of the radius of a mark


def with_pointer(png: bytes, places: Sequence[Place]) -> bytes:
    """The picture with a ring and a dot at a place, or with an arrow between two. Raises UserError for damage."""
    from PIL import ImageDraw

    picture = decoded_picture(png)
    radius = max(SMALLEST, min(picture.size) / 32)
    points = [(x * (picture.width - 1), y * (picture.height - 1)) for x, y in places]
    drawing = ImageDraw.Draw(picture)
    for width, colour in ((5, EDGE), (2, INK)):
        if len(points) == 1:
            draw_ring(drawing, points[0], radius, width=width, colour=colour)
        elif points:
            draw_arrow(drawing, points[0], points[-1], radius, width=width, colour=colour)
    sink = io.BytesIO()
    picture.save(sink, format="PNG")
    return sink.getvalue()


def draw_ring(drawing: Any, at: Place, radius: float, *, width: int, colour: tuple[int, int, int]) -> None:
    x, y = at
    drawing.ellipse((x - radius, y - radius, x + radius, y + radius), outline=colour, width=width)
    drawing.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), fill=colour)


def draw_arrow(
    drawing: Any, start: Place, end: Place, radius: float, *, width: int, colour: tuple[int, int, int]
) -> None:
    drawing.line((start, end), fill=colour, width=width)
    back = math.atan2(start[1] - end[1], start[0] - end[0])
    for turn in (-0.5, 0.5):
        tip = end[0] + 2 * radius * math.cos(back + turn), end[1] + 2 * radius * math.sin(back + turn)
        drawing.line((end, tip), fill=colour, width=width)
