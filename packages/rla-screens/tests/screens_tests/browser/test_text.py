"""The mode `text`: lines of a page, and commands as they are written and read."""

from __future__ import annotations

import pytest
from rla_screens.browser.commands import command_of, deed_of, page_commands, typed_texts
from rla_screens.browser.deeds import DeedKind, PageDeed, keys_of
from rla_screens.browser.text_view import EMPTY, page_text

from screens_tests.browser.states import said, state, thing

FORM = state(
    'Enter the username "ada" and the password "Xb" into the text fields and press login.',
    said("Username"),
    thing(1, "textbox", value="ada", focused=True),
    said("Password"),
    thing(2, "textbox", kind="password"),
    thing(3, "button", "Login"),
)


def test_a_page_is_one_line_for_each_element() -> None:
    assert page_text(FORM) == (
        'text "Username"\n1 textbox value "ada" focused\ntext "Password"\n2 textbox\n3 button "Login"'
    )


@pytest.mark.parametrize(
    ("element", "line"),
    [
        (thing(4, "checkbox", "blue", checked=True), '4 checkbox "blue" checked'),
        (thing(5, "tab", "Tab #1", checked=True), '5 tab "Tab #1" open'),
        (thing(6, "select", options=("a", "b"), chosen=("b",)), '6 select options "a" "b" chosen "b"'),
        (thing(7, "item", sign="star", classes="star clicked"), '7 item "star" on'),
        (thing(8, "item", sign="color", color="rgb(128, 128, 128)"), '8 item "color" grey'),
        (thing(9, "circle", color="rgb(255, 0, 0)", box=(0, 0, 20, 18)), "9 circle red size 20"),
        (thing(10, "text", "E", color="rgb(0, 0, 254)", box=(0, 0, 7, 9)), '10 letter "E" blue size 9'),
        (thing(11, "button", 'say "hi"', disabled=True), "11 button \"say 'hi'\" disabled"),
    ],
)
def test_a_line_says_what_an_element_is_and_how_it_stands(element, line) -> None:
    assert page_text(state("", element)) == line


def test_a_page_without_elements_says_so() -> None:
    assert page_text(state("")) == EMPTY


def test_all_commands_are_enumerated_in_the_order_of_the_page() -> None:
    assert page_commands(FORM) == (
        "click 1",
        'type "ada" in 1',
        'type "Xb" in 1',
        "click 2",
        'type "ada" in 2',
        'type "Xb" in 2',
        "click 3",
        "press Enter",
        "done",
    )


def test_what_is_disabled_has_no_commands_and_options_have_one_each() -> None:
    page = state("", thing(1, "button", "Ok", disabled=True), thing(2, "select", options=("a", "b")))
    assert page_commands(page) == ("click 2", 'select "a" in 2', 'select "b" in 2', "done")


def test_a_quotation_that_is_the_label_of_a_button_is_not_typed() -> None:
    page = state(
        'Type the 2nd word and press "Submit".',
        said("lorem, ipsum."),
        thing(1, "textbox"),
        thing(2, "button", "Submit"),
    )
    assert {"lorem", "ipsum"} <= set(typed_texts(page)) and "Submit." not in typed_texts(page)


def test_letters_change_their_case_where_the_utterance_speaks_of_it() -> None:
    assert typed_texts(state('Type "Ada" in all upper case letters.')) == ("Ada", "ADA", "ada")


@pytest.mark.parametrize(
    "command",
    [
        "click 17",
        "hover 3",
        "type \"Ada, or: 'x'\" in 12",
        'select "5ft 9in" in 3',
        "press Enter",
        "press Up",
        "drag 2 to 5",
        "done",
    ],
)
def test_a_command_is_read_as_it_was_written(command: str) -> None:
    deed = deed_of(command)
    assert deed is not None and command_of(deed) == command


@pytest.mark.parametrize(
    "text", ["", "click", "click 1; done", "click -1", "click \u0661", "type Ada in 1", "press F4", "no action"]
)
def test_anything_else_is_no_command(text: str) -> None:
    assert deed_of(text) is None


def test_a_typed_text_may_end_like_a_command() -> None:
    deed = deed_of('type "a" in 2" in 3')
    assert deed == PageDeed(kind=DeedKind.TYPE, ref=3, text='a" in 2')


def test_a_time_of_day_is_typed_without_white_space() -> None:
    assert keys_of(thing(1, "textbox", kind="time"), "6:15 AM") == "0615AM"
    assert keys_of(thing(1, "textbox", kind="text"), "6:15 AM") == "6:15 AM"
