"""The expert's deeds on elements as deeds on points, on states made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rla_screens.browser.deeds import DeedKind, PageDeed
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.pixel_commands import pixel_commands
from rla_screens.browser.pixel_expert import pixel_action
from rla_screens.browser.pixel_view import PixelView
from rla_screens.browser.state import PageElement, PageState

from rla.envs.registry import load_config
from rla.errors import UserError

OWN = BrowserParams(mode="pixels")


def page(**fields: Any) -> PageState:
    found = PageElement(**{"ref": 1, "role": "textbox", "text": "", "box": (20.0, 100.0, 80.0, 20.0)} | fields)
    return PageState(utterance='Enter "Ada" into the field.', elements=(found,))


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (page(), "click 40 50"),  # the middle is 60, 110; the nearest points of the grid are 65, 106 and 65, 114
        (page(focused=True, value="B"), "press Backspace"),
        (page(focused=True), 'type "Ada"'),
        (page(box=(20.0, 400.0, 80.0, 20.0)), "scroll down"),
        (page(box=(20.0, -90.0, 80.0, 20.0)), "scroll up"),
    ],
)
def test_a_field_is_clicked_on_emptied_and_typed_into(state: PageState, action: str) -> None:
    deed = PageDeed(kind=DeedKind.TYPE, ref=1, text="Ada")
    assert pixel_action(deed, state, OWN) == action
    assert action in pixel_commands(OWN, state)


def test_calls_click_on_the_middle_itself() -> None:
    own = BrowserParams(mode="pixels", actions="browsergym")
    assert pixel_action(PageDeed(kind=DeedKind.CLICK, ref=1), page(), own) == "mouse_click(377, 526)"
    assert pixel_commands(own, page()) == ()


def test_only_what_shows_of_an_element_is_clicked_on() -> None:
    state = page(box=(150.0, 100.0, 80.0, 20.0))
    assert pixel_action(PageDeed(kind=DeedKind.CLICK, ref=1), state, OWN) == "click 96 50"


def test_who_errs_clicks_on_another_element_or_does_not_click() -> None:
    """Of the 336 clicks of the grid the one on the field and the one on the button; the text is no element. The field
    may be typed into where it has the focus.
    """
    (field,) = page(focused=True).elements
    button = replace(field, ref=2, role="button", focused=False, box=(25.0, 136.0, 40.0, 20.0))
    text = replace(field, ref=0, role="", focused=False, box=(20.0, 180.0, 40.0, 20.0))
    state = PageState(utterance='Enter "Ada" into the field.', elements=(field, button, text))
    shown = pixel_commands(OWN, state)
    found = PixelView(own=OWN).mistakes(state, shown)
    assert [one for one in found if one.startswith("click")] == ["click 40 50", "click 28 69"]
    assert [one for one in found if not one.startswith("click")] == [
        one for one in shown if not one.startswith("click")
    ]
    hidden = replace(state, elements=(replace(field, box=(20.0, 400.0, 80.0, 20.0)),))
    assert not any(one.startswith("click") for one in PixelView(own=OWN).mistakes(hidden, shown))


@pytest.mark.parametrize(
    "deed", [PageDeed(kind=DeedKind.DONE), PageDeed(kind=DeedKind.CLICK, ref=9), PageDeed(kind=DeedKind.SELECT, ref=1)]
)
def test_the_expert_gives_up_where_a_screenshot_shows_no_way(deed: PageDeed) -> None:
    assert pixel_action(deed, page(), OWN) == "done"


@pytest.mark.parametrize(
    ("setting", "named"),
    [("policy.reply=index", "policy.reply"), ("env.own.actions=browsergym", "policy.decoding: admissible")],
)
def test_what_pixels_cannot_do_is_refused(setting: str, named: str) -> None:
    pixels = ["env.name=browser", "env.own.mode=pixels", "policy.reply=text", "policy.decoding=admissible"]
    with pytest.raises(UserError, match=named):
        load_config(None, [*pixels, setting])
