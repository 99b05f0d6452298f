"""Short words on a grid, and points that do not depend on the size of a screen."""

from __future__ import annotations

import pytest
from rla_screens.screens.deeds import Motion, ScreenDeed, pixel_of, point_of
from rla_screens.screens.short import Grid, deed_of_words, grid_clicks, grid_of, words_of_deed


@pytest.mark.parametrize(
    "deed",
    [
        ScreenDeed(motion=Motion.CLICK, at=(35, 975)),
        ScreenDeed(motion=Motion.DRAG, at=(5, 15), to=(995, 35)),
        ScreenDeed(motion=Motion.TYPE, text='say "hi"'),
        ScreenDeed(motion=Motion.PRESS, keys=("Enter",)),
        ScreenDeed(motion=Motion.SCROLL, down=100),
        ScreenDeed(motion=Motion.DONE),
    ],
)
def test_a_deed_comes_back_from_its_words(deed: ScreenDeed) -> None:
    assert deed_of_words(words_of_deed(deed)) == deed


@pytest.mark.parametrize(
    "text", ["click 5", "click 100 5", "click 5 -5", "click 5 5 5", "type Ada", 'type "a\nb"', "press Fn", "no action"]
)
def test_other_words_are_no_action(text: str) -> None:
    assert deed_of_words(text) is None


def test_cells_of_a_page() -> None:
    grid = grid_of(160, 210, 10)
    assert grid == Grid(columns=16, rows=21)
    assert grid.point(0, 0) == (35, 25)  # within hundredths 100 / 32 and 100 / 42
    assert grid.nearest((999, 999)) == grid.point(15, 20) == (965, 975)
    assert len(grid_clicks(grid)) == len(set(grid_clicks(grid))) == 16 * 21
    assert all(grid.nearest(point) == point for point in grid.points())


def test_points_and_pixels() -> None:
    assert pixel_of((0, 0), 160, 210) == (0, 0)
    assert pixel_of((999, 999), 160, 210) == (159, 209)
    assert point_of(159, 209, 160, 210) == (999, 999)
    assert point_of(-50, 500, 160, 210) == (0, 999)
    assert all(pixel_of(point_of(x, y, 160, 210), 160, 210) == (x, y) for x in range(160) for y in (0, 100, 209))
