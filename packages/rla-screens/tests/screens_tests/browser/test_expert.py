"""The expert's rules, each on a page as it was once seen."""

from __future__ import annotations

from rla_screens.browser.commands import command_of
from rla_screens.browser.expert_rules import RULES, expert_deed
from rla_screens.browser.pages import CLOCK_BOUND
from rla_screens.browser.state import PageState

from screens_tests.browser.states import said, state, thing


def command(page: str, shown: PageState) -> str:
    return command_of(expert_deed(page, shown))


def test_it_clicks_the_button_of_exactly_that_name() -> None:
    page = state('Click on the "ok" button.', thing(1, "button", "Ok"), thing(2, "button", "ok"))
    assert command("click-button", page) == "click 2"


def test_it_goes_on_to_the_next_tab_until_the_link_is_there() -> None:
    tabs = thing(1, "tab", "1"), thing(2, "tab", "2", checked=True), thing(3, "tab", "3")
    asked = 'Switch between the tabs to find and click on the link "nam".'
    assert command("click-tab-2-hard", state(asked, *tabs, thing(4, "link", "dis"))) == "click 3"
    assert command("click-tab-2-hard", state(asked, *tabs, thing(4, "link", "nam"))) == "click 4"


def test_it_checks_what_is_asked_for_unchecks_the_rest_and_submits() -> None:
    def page(*checked: bool) -> PageState:
        boxes = (
            thing(n, "checkbox", name, checked=on) for n, (name, on) in enumerate(zip("abc", checked, strict=True), 1)
        )
        return state("Select a, c and click Submit.", *boxes, thing(4, "button", "Submit"))

    assert command("click-checkboxes", page(True, False, False)) == "click 3"
    assert command("click-checkboxes", page(True, True, True)) == "click 2"
    assert command("click-checkboxes", page(True, False, True)) == "click 4"


def test_it_fills_in_what_is_missing_and_cancels_what_asks_it_to_leave() -> None:
    asked = 'Enter the username "vina" and the password "US" into the text fields and press login.'

    def page(name: str, word: str) -> PageState:
        return state(
            asked, thing(1, "textbox", value=name), thing(2, "textbox", value=word), thing(3, "button", "Login")
        )

    assert command("login-user", page("", "")) == 'type "vina" in 1'
    assert command("login-user", page("vina", "no")) == 'type "US" in 2'
    assert command("login-user", page("vina", "US")) == "click 3"
    popup = state(asked, thing(1, "textbox", disabled=True), thing(4, "button", "OK"), thing(5, "button", "Cancel"))
    assert command("login-user-popup", popup) == "click 5"


def test_it_goes_to_the_month_and_then_to_the_day() -> None:
    def page(month: str) -> PageState:
        links = (thing(2, "link", "Prev"), thing(3, "link", "Next"), said(f"{month} 2016"), thing(4, "link", "3"))
        return state("Select 03/03/2016 as the date and hit submit.", thing(1, "textbox"), *links)

    closed = state("Select 03/03/2016 as the date and hit submit.", thing(1, "textbox"))
    assert [command("choose-date", one) for one in (closed, page("May"), page("January"), page("March"))] == [
        "click 1",
        "click 2",
        "click 3",
        "click 4",
    ]


def test_it_finds_the_icon_in_the_row_of_the_sender() -> None:
    rows = (
        *(thing(1, "item", sign="open-search"), thing(2, "item", "Ada Lorem ipsum.."), thing(3, "item", sign="trash")),
        *(thing(4, "item", sign="star"), thing(5, "item", "Adam Dolor sit.."), thing(6, "item", sign="trash")),
    )
    asked = "Find the email by Adam and click the trash icon to delete it."
    assert command("email-inbox", state(asked, *rows)) == "click 6"


def test_it_writes_an_answer_step_by_step() -> None:
    asked = 'Find the email by Ada and reply to them with the text "Yes."'
    listed = state(asked, thing(2, "item", "Ada Lorem ipsum.."))
    opened = state(asked, thing(7, "item", sign="close-email"), thing(8, "item", "Reply"))
    writing = state(asked, thing(9, "item", sign="send-reply"), thing(10, "textarea"))
    written = state(asked, thing(9, "item", sign="send-reply"), thing(10, "textarea", value="Yes."))
    found = [command("email-inbox-reply", page) for page in (listed, opened, writing, written)]
    assert found == ["click 2", "click 8", 'type "Yes." in 10', "click 9"]


def test_it_counts_points_of_a_grid_from_the_middle() -> None:
    points = [
        thing(5 * row + column + 1, "circle", box=(10 + 20 * column, 100 + 20 * row, 4, 4))
        for row in range(5)
        for column in range(5)
    ]
    assert command("grid-coordinate", state("Click on the grid coordinate (-2,1).", *points)) == "click 6"


def test_it_gives_up_where_it_knows_no_rule_or_finds_nothing() -> None:
    assert command("hot-cold", state("Find and click on the HOT area.")) == "done"
    assert command("click-button", state('Click on the "ok" button.')) == "done"


def test_no_rule_fails_on_a_page_that_is_not_as_expected() -> None:
    things = [thing(n, role, "3") for n, role in enumerate(("button", "textbox", "link", "circle", "select", "tab"), 1)]
    for page in RULES:
        for asked in (
            "",
            'Select 99 "',
            "Find the email by Ada",
            "Select 13/99/2016",
            '"a" 9th "b" (1,1) and click Submit.',
        ):
            command(page, state(asked, *things))


def test_it_knows_forty_pages_and_more() -> None:
    assert len(RULES) >= 40 and not RULES.keys() & CLOCK_BOUND
