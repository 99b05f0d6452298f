"""Expert rules for pages on which things are clicked: buttons, links, tabs, boxes, lists, colours, menus, posts."""

from __future__ import annotations

import re

from rla_screens.browser.colors import color_name
from rla_screens.browser.deeds import PageDeed
from rla_screens.browser.expert_finding import (
    at,
    click,
    element_named,
    first,
    first_quote,
    hover,
    of_role,
    press_button,
    quotes,
    select,
    submit,
    text_between,
)
from rla_screens.browser.state import PageElement, PageState

WIDGETS = {"checkbox": "checkbox", "radio": "radio", "text": "textbox", "textarea": "textarea", "button": "button"}
FIGURES = {"rect": "Rectangle", "circle": "Circle", "polygon": "Triangle"}
SAME_COLOR = {"aqua": "cyan", "gray": "grey", "fuchsia": "magenta", "violet": "magenta"}
GRID = re.compile(r"\((-?\d+), ?(-?\d+)\)")
POSTS = re.compile(r"on (all|\d+) posts? by (@\S+)")


def quoted_button(state: PageState) -> PageDeed | None:
    return click(element_named(state, first_quote(state), roles=("button",)))


def only_button(state: PageState) -> PageDeed | None:
    return click(at(of_role(state, "button"), 0))


def button_one(state: PageState) -> PageDeed | None:
    return press_button(state, "ONE")


def one_then_two(state: PageState) -> PageDeed | None:
    """The button that was clicked has the focus."""
    one = element_named(state, "ONE")
    return press_button(state, "TWO") if one is not None and one.focused else click(one)


def quoted_link(state: PageState) -> PageDeed | None:
    return click(element_named(state, first_quote(state), roles=("link",)))


def tab_of_number(state: PageState) -> PageDeed | None:
    found = re.search(r"Tab #(\d+)", state.utterance)
    return click(element_named(state, found[0], roles=("tab",))) if found else None


def link_behind_tabs(state: PageState) -> PageDeed | None:
    """The link if it is visible; else the tab after the open one."""
    tabs = of_role(state, "tab")
    opened = max((number for number, tab in enumerate(tabs) if tab.is_on), default=-1)
    return first(quoted_link(state), click(tabs[(opened + 1) % len(tabs)]) if tabs else None)


def open_then_submit(state: PageState) -> PageDeed | None:
    closed = next((tab for tab in of_role(state, "tab") if tab.name.startswith("Section") and not tab.is_on), None)
    return first(click(closed), submit(state))


def close_dialog(state: PageState) -> PageDeed | None:
    wanted = first_quote(state)
    return press_button(state, "Close" if wanted in ("", "x") else wanted)


def _asked_choices(state: PageState) -> list[str]:
    """`Select a, b and click Submit`, `Select a from the list and click Submit`."""
    said = text_between(state.utterance, "Select ", " and click Submit").partition(" from ")[0]
    return [] if said == "nothing" else [name.strip() for name in said.split(", ")]


def boxes(state: PageState) -> PageDeed | None:
    """Check the requested boxes and no others, then submit."""
    wanted = _asked_choices(state)
    wrong = next((box for box in of_role(state, "checkbox") if (box.text in wanted) is not box.is_on), None)
    return first(click(wrong), submit(state))


def one_option(state: PageState) -> PageDeed | None:
    wanted = _asked_choices(state)
    radio = next((one for one in of_role(state, "radio") if one.text in wanted and not one.is_on), None)
    return first(click(radio), submit(state))


def from_list(state: PageState) -> PageDeed | None:
    lists = of_role(state, "select")
    return first(*(select(at(lists, 0), name) for name in _asked_choices(state)), submit(state))


def widget(state: PageState) -> PageDeed | None:
    return click(at(of_role(state, WIDGETS.get(first_quote(state), "")), 0))


def colored_box(state: PageState) -> PageDeed | None:
    said = text_between(state.utterance, "Click on the ", " colored box")
    wanted = SAME_COLOR.get(said, said)
    return click(next((one for one in of_role(state, "item") if color_name(one.color) == wanted), None))


def figure(state: PageState) -> PageDeed | None:
    shapes = of_role(state, *FIGURES, "text")
    if not shapes:
        return None
    shape = shapes[0]
    kind = FIGURES.get(shape.role) or ("Number" if shape.text.isdigit() else "Letter")
    return press_button(state, kind)


def grid_point(state: PageState) -> PageDeed | None:
    """Points lie in rows and columns around (0, 0)."""
    found, points = GRID.search(state.utterance), of_role(state, "circle")
    if found is None or not points:
        return None
    columns, rows = (sorted({round(point.middle[axis]) for point in points}) for axis in (0, 1))
    column, row = len(columns) // 2 + int(found[1]), len(rows) // 2 - int(found[2])
    if not (0 <= column < len(columns) and 0 <= row < len(rows)):
        return None
    x, y = columns[column], rows[row]
    return click(min(points, key=lambda one: abs(one.middle[0] - x) + abs(one.middle[1] - y)))


def menu_path(state: PageState) -> PageDeed | None:
    """The last item of `Select A>B>C` if it is visible; else hover over the one before it."""
    *before, last = (name.strip() for name in state.utterance.removeprefix("Select ").split(">"))
    return first(click(element_named(state, last)), *(hover(element_named(state, name)) for name in reversed(before)))


def menu_entry(state: PageState) -> PageDeed | None:
    """`Click the "Menu" button, and then find and click on the item labeled "Prev".` Some are under `Playback`."""
    names = quotes(state)
    entry = click(element_named(state, names[1], roles=("menuitem",))) if len(names) > 1 else None
    return first(entry, hover(element_named(state, "Playback")), press_button(state, "Menu"))


def contact_detail(state: PageState) -> PageDeed | None:
    """`Find Sayre in the contact book and click on their address.`"""
    person = text_between(state.utterance, "Find ", " in the contact book")
    wanted = text_between(state.utterance, "their ", ".").split(" ")[0]
    shown = next((one.text for one in state.elements if not one.role), "")
    if shown != person:
        return press_button(state, ">")
    return click(following(state, wanted, role="link"))


def following(state: PageState, label: str, *, role: str) -> PageElement | None:
    """The first element with this role after the text `label:`."""
    seen = False
    for one in state.elements:
        if seen and one.role == role:
            return one
        seen = seen or (not one.role and one.text.lower().rstrip(":") == label.lower())
    return None


def tree_entry(state: PageState) -> PageDeed | None:
    """The entry if it is visible; else a closed folder."""
    closed = next((one for one in of_role(state, "item") if "expandable-hitarea" in one.classes), None)
    return first(click(element_named(state, first_quote(state), roles=("item", "link"))), click(closed))


def _posts_of(state: PageState, user: str) -> list[list[PageElement]]:
    """The elements that follow each mention of a user, up to the next user."""
    rows: list[list[PageElement]] = []
    mine = False
    for one in state.elements:
        if not one.role and one.text.startswith("@"):
            mine = one.text == user
            rows += [[]] if mine else []
        elif mine and one.ref:
            rows[-1].append(one)
    return rows


def post_button(state: PageState) -> PageDeed | None:
    """`For the user @leo, click on the "Mute" button.` It may be in a menu under `more`."""
    user, wanted = text_between(state.utterance, "user ", ","), first_quote(state)
    shown = element_named(state, wanted, f"{wanted} {user}", roles=("item", "link", "menuitem"))
    if shown is not None and shown.text:
        return click(shown)
    row = next(iter(_posts_of(state, user)), [])
    icon = next((one for one in row if one.sign == wanted.lower()), None)
    return first(click(icon), click(next((one for one in row if one.sign == "more"), None)))


def many_post_buttons(state: PageState) -> PageDeed | None:
    """`Click the "Reply" button on 2 posts by @dis and then click Submit.`"""
    found, wanted = POSTS.search(state.utterance), first_quote(state).lower()
    if found is None:
        return None
    icons = [one for row in _posts_of(state, found[2]) for one in row if one.sign == wanted]
    count = len(icons) if found[1] == "all" else int(found[1])
    left = [one for one in icons[:count] if not one.is_on]
    return first(click(at(left, 0)), submit(state))


def agreement(state: PageState) -> PageDeed | None:
    return press_button(state, "Cancel") if "cancel" in state.utterance else None
