"""The mode `text`: a page as short lines, and commands on its elements.

    17 button "Ok"
    12 textbox "Name" value "Ada" focused
    3 checkbox "blue" checked
    text "Fill in the form."

An element keeps its number as long as it is on the page; new elements get new numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from rla.envs.observation import Observation
from rla_screens.browser.colors import color_name
from rla_screens.browser.commands import command_of, deed_of, page_commands
from rla_screens.browser.deeds import DeedKind, perform
from rla_screens.browser.driver import BrowserPage
from rla_screens.browser.episode import Acted
from rla_screens.browser.expert_rules import expert_deed
from rla_screens.browser.scenes import PageScene
from rla_screens.browser.state import PageElement, PageState

EMPTY = "the page is empty"
LONGEST_SHOWN = 120  # characters of a label or value
SHAPES = frozenset({"circle", "rect", "polygon", "ellipse", "path", "line", "text", "polyline"})


class TextView:
    """`rla_screens.browser.episode.BrowserView`."""

    async def show(self, page: BrowserPage, state: PageState, scene: PageScene, *, first: bool) -> Observation:
        text = self.first(scene, state) if first else page_text(state)
        return Observation(text=text, commands=page_commands(state), place=state.digest())

    @staticmethod
    def first(scene: PageScene, state: PageState) -> str:
        """The instruction and the page."""
        return f"{scene.instruction}\n{page_text(state)}"

    async def act(self, page: BrowserPage, state: PageState, scene: PageScene, action: str) -> Acted:
        deed = deed_of(action)
        if deed is None:
            return Acted(understood=False)
        done = await perform(page, state, deed)
        return Acted(understood=done, ended=deed.kind is DeedKind.DONE)

    def expert(self, state: PageState, scene: PageScene) -> str:
        return command_of(expert_deed(scene.page, state))

    def mistakes(self, state: PageState, shown: Sequence[str]) -> Sequence[str]:
        """All commands."""
        return shown


def page_text(state: PageState) -> str:
    """All lines of a page."""
    return "\n".join(map(_element_line, state.elements)) or EMPTY


def _element_line(element: PageElement) -> str:
    """One line; quotation marks within a text become apostrophes."""
    shape = element.role in SHAPES
    parts = [str(element.ref)] if element.ref else []
    parts += ["letter" if element.role == "text" else element.role or "text"]
    parts += [_quoted_label(element.name)] if element.name else []
    parts += [color_name(element.color)] if shape or (element.role == "item" and not element.text) else []
    parts += [f"size {max(element.box[2:]):.0f}"] if shape else []
    parts += ["value", _quoted_label(element.value)] if element.value else []
    parts += ["options", *map(_quoted_label, element.options)] if element.options else []
    parts += ["chosen", *map(_quoted_label, element.chosen)] if element.chosen else []
    on = {"tab": "open", "checkbox": "checked", "radio": "checked"}.get(element.role, "on")
    marks = {on: element.is_on and element.ref, "focused": element.focused, "disabled": element.disabled}
    parts += [word for word, is_so in marks.items() if is_so]
    return " ".join(part for part in parts if part)


def _quoted_label(text: str) -> str:
    plain = text.replace('"', "'")
    return f'"{plain if len(plain) <= LONGEST_SHOWN else plain[:LONGEST_SHOWN] + "..."}"'
