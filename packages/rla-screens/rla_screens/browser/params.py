"""Parameters of the environment `browser`: `env.own`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Literal

from rla.config import Config
from rla.config.schema import LONGEST_WAIT, from_one, ranged, without_effect
from rla.errors import UserError
from rla_screens.browser.pages import pages_folder, pages_of_kinds
from rla_screens.screens.forms import FormName

Success = Literal["positive", "full", "score"]
PROGRAM = "chromium-headless-shell"
BLANKED = "blanked"  # a held-out split of this name does not show the page


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserParams:
    """Parameters of the environment `browser` (`docs/guide/browser.md`)."""

    mode: Literal["text", "pixels"] = "text"  # what the policy reads: the page as text, or screenshots
    folder: str = ""  # your own pages in the form of MiniWoB++; empty: the pages of the package miniwob
    # pages of all held-out splits but the first (tasks.test_splits); empty: tasks.kinds
    other_pages: tuple[str, ...] = ()
    # positive: a raw reward above 0 wins; full: a reward of 1 wins; score: it is the episode's reward
    # (env.reward_threshold)
    success: Success = "positive"
    width: int = ranged(160, least=80, most=4096)  # of the viewport, in pixels
    height: int = ranged(210, least=80, most=4096)
    # pixels: how deeds are written: in few words, by BrowserGym's names, or as calls of Qwen's computer_use
    actions: FormName = "short"
    cell: int = from_one(10)  # `short`: side in pixels of the cells; clicks go to their middles
    # time in ms that passes on the page with each action; its clock stands still otherwise
    step_ms: int = from_one(500)
    executable: str = without_effect("")  # the browser; empty: chromium-headless-shell on PATH
    processes: int = without_effect(1, least=1, most=64)  # browsers that the episodes of a stage share
    contexts: int = without_effect(16, least=1, most=256)  # episodes open in one browser at a time
    reset_s: float = without_effect(30.0, above=0.0, most=LONGEST_WAIT)  # seconds that a page has to begin
    step_s: float = without_effect(15.0, above=0.0, most=LONGEST_WAIT)  # seconds that a page has for an action


def browser_params(config: Config) -> BrowserParams:
    """The environment's own parameters."""
    own: BrowserParams = config.env.own
    return own


def check_browser(config: Config) -> None:
    """Refuses missing programs and pages, and parameters that do not fit together. Raises UserError."""
    own = browser_params(config)
    folder = pages_folder(own.folder)
    pages_of_kinds(config.tasks.kinds, folder, key="tasks.kinds")
    pages_of_kinds(config.tasks.test_kinds, folder, key="tasks.test_kinds")
    pages_of_kinds(own.other_pages, folder, key="env.own.other_pages")
    if own.other_pages and not set(config.tasks.test_splits[1:]) - {BLANKED}:
        raise UserError("env.own.other_pages are for a second held-out split; set tasks.test_splits: [test, pages]")
    further = BLANKED in config.tasks.test_splits[1:]
    if BLANKED in (config.tasks.train_split, *config.tasks.test_splits) and not (further and own.mode == "pixels"):
        raise UserError(
            f"tasks.test_splits: {BLANKED!r} shows the tasks of the first split without the page; name it after "
            "another one, with env.own.mode: pixels"
        )
    if own.mode == "pixels":
        _check_pixels(config)
    if config.tasks.path:
        raise UserError("env.name: browser makes its own tasks; leave tasks.path out")


def _check_pixels(config: Config) -> None:
    """Raises UserError for parameters that do not work with the mode `pixels`."""
    if config.policy.reply == "index":
        raise UserError("policy.reply: index counts commands, which pixels does not list; set it to text or tagged")
    if browser_params(config).actions != "short" and config.policy.decoding == "admissible":
        raise UserError("policy.decoding: admissible chooses among commands; with it, set env.own.actions: short")


def browser_program(own: BrowserParams) -> str:
    """The path of the browser. Raises UserError if there is none."""
    found = shutil.which(own.executable or PROGRAM)
    if found is None and own.executable:
        raise UserError(f"env.own.executable: {own.executable} is not a program; name Chromium, or leave it empty")
    if found is None:
        raise UserError(
            f"{PROGRAM} is not on PATH (Debian: apt-get install {PROGRAM}); or name it in env.own.executable"
        )
    return found
