"""The commands that the mode `pixels` offers with `env.own.actions: short`: all clicks on a grid, the wheel, the end,
and for a focused field the texts to type and two keys.
"""

from __future__ import annotations

from rla_screens.browser.commands import typed_texts
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.state import PageState
from rla_screens.screens.short import Grid, grid_clicks, grid_of

TYPING_KEYS = ("press Enter", "press Backspace")
ALWAYS = ("scroll up", "scroll down", "done")


def page_grid(own: BrowserParams) -> Grid:
    """The points that commands name."""
    return grid_of(own.width, own.height, own.cell)


def pixel_commands(own: BrowserParams, state: PageState) -> tuple[str, ...]:
    """The offered commands; empty if actions are calls."""
    if own.actions != "short":
        return ()
    clicks = grid_clicks(page_grid(own))
    typing: tuple[str, ...] = ()
    if any(element.focused and element.takes_text for element in state.elements):
        typing = (*(f'type "{text}"' for text in typed_texts(state)), *TYPING_KEYS)
    return (*clicks, *typing, *ALWAYS)
