"""Marks of clicks: where they stand, and that they are drawn on a copy."""

from __future__ import annotations

import io

from PIL import Image
from rla_screens.screens.pointing import INK, with_pointer

from tests.seeing import png_of


def pixels(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


def test_a_click_is_a_dot_in_a_ring() -> None:
    plain = png_of((0, 0, 0), width=101, height=51)
    drawn = pixels(with_pointer(plain, [(0.5, 0.6)]))
    assert drawn.size == (101, 51)
    assert drawn.getpixel((50, 30)) == INK
    assert drawn.getpixel((50, 45)) == (0, 0, 0)
    assert pixels(plain).getpixel((50, 30)) == (0, 0, 0)


def test_a_drag_is_an_arrow() -> None:
    drawn = pixels(with_pointer(png_of((0, 0, 0), width=101, height=51), [(0.1, 0.8), (0.9, 0.8)]))
    assert drawn.getpixel((50, 40)) == INK
