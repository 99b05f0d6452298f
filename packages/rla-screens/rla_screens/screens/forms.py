"""The forms in which a model writes its deeds on a screen, by name.

The action in an episode is the result of `read`: a call with BrowserGym's names, whatever tool the model called, or the
short words. So trajectories, judges and viewers need to know only two forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rla_screens.screens.calls import call_of_deed, deed_of_call
from rla_screens.screens.computer_use import deed_of_tool_call, tool_call_of
from rla_screens.screens.deeds import ScreenDeed
from rla_screens.screens.short import deed_of_words, words_of_deed

FormName = Literal["short", "browsergym", "computer_use"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenForm:
    """`read`: a deed from the text of a model, None if it is not one. `write`: a deed as a model writes it; raises
    ValueError if the form cannot express it. `action`: a deed as the action of an episode.
    """

    name: FormName
    read: Callable[[str], ScreenDeed | None]
    write: Callable[[ScreenDeed], str]
    action: Callable[[ScreenDeed], str]


FORMS: dict[FormName, ScreenForm] = {
    "short": ScreenForm(name="short", read=deed_of_words, write=words_of_deed, action=words_of_deed),
    "browsergym": ScreenForm(name="browsergym", read=deed_of_call, write=call_of_deed, action=call_of_deed),
    "computer_use": ScreenForm(name="computer_use", read=deed_of_tool_call, write=tool_call_of, action=call_of_deed),
}


def deed_of_action(action: str) -> ScreenDeed | None:
    """The deed of an episode's action in either form; None if it is not a deed."""
    return deed_of_words(action) or deed_of_call(action)
