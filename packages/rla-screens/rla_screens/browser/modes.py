"""The view of a mode, and the rewards that win, for callers that play a page."""

from __future__ import annotations

from dataclasses import dataclass

from rla_screens.browser.episode import BrowserView
from rla_screens.browser.params import BrowserParams, Success
from rla_screens.browser.pixel_view import PixelView
from rla_screens.browser.state import PageState
from rla_screens.browser.text_view import TextView


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedMode:
    """`threshold`: `env.reward_threshold`, which decides if `success` is `score`. `max_steps`: 0 if unknown."""

    view: BrowserView
    success: Success
    threshold: float
    max_steps: int = 0

    def is_won(self, state: PageState) -> bool:
        """By `env.own.success`; with `score` by the threshold of rewards."""
        bar = {"positive": 0.0, "full": 1.0, "score": self.threshold}[self.success]
        return state.done and (state.reward > bar if self.success == "positive" else state.reward >= bar)


def page_view(own: BrowserParams) -> BrowserView:
    """The view of the mode in the parameters."""
    return PixelView(own=own) if own.mode == "pixels" else TextView()


def played_mode(own: BrowserParams, threshold: float, max_steps: int = 0) -> PlayedMode:
    """The mode in the parameters."""
    return PlayedMode(view=page_view(own), success=own.success, threshold=threshold, max_steps=max_steps)
