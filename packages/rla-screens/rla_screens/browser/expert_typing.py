"""Expert rules for pages on which something is typed, computed or looked up."""

from __future__ import annotations

import re
from itertools import pairwise

from rla_screens.browser.deeds import PageDeed
from rla_screens.browser.expert_finding import (
    PUNCTUATION,
    after_label,
    at,
    click,
    element_named,
    first,
    first_quote,
    of_role,
    ordinal,
    press_button,
    quotes,
    select,
    submit,
    text_between,
)
from rla_screens.browser.expert_finding import fill as typed
from rla_screens.browser.state import PageElement, PageState

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
DATE = re.compile(r"(\d\d)/(\d\d)/(\d{4})")
TIME = re.compile(r"\d{1,2}:\d\d [AP]M")
MOVIES = re.compile(r"Search for (\S+) movies directed by (\S+) from year (\d{4})")
LABELS = {"genre": 1, "director": 2, "year": 3, "date": 3}


def fields(state: PageState) -> list[PageElement]:
    return of_role(state, "textbox")


def quoted_text(state: PageState) -> PageDeed | None:
    text = first_quote(state)
    if "upper case" in state.utterance:
        text = text.upper()
    elif "lower case" in state.utterance:
        text = text.lower()
    return first(typed(at(fields(state), 0), text), submit(state))


def text_in_all(state: PageState) -> PageDeed | None:
    return first(*(typed(field, first_quote(state)) for field in fields(state)), submit(state))


def sign_in(state: PageState) -> PageDeed | None:
    """Name and password, one field each; a dialog that asks to leave is cancelled first."""
    if (cancel := element_named(state, "Cancel", roles=("button",))) is not None:
        return click(cancel)
    pairs = zip(fields(state), quotes(state), strict=False)
    return first(*(typed(field, text) for field, text in pairs), submit(state))


def focus(state: PageState) -> PageDeed | None:
    return click(at(fields(state), ordinal(state)))


def said_date(state: PageState) -> PageDeed | None:
    """Date fields display a typed date in another form."""
    found, field = DATE.search(state.utterance), at(fields(state), 0)
    if found is None or field is None:
        return None
    done = field.value == f"{found[3]}-{found[1]}-{found[2]}"
    return first(None if done else typed(field, found[0]), submit(state))


def said_time(state: PageState) -> PageDeed | None:
    found, field = TIME.search(state.utterance), at(fields(state), 0)
    if found is None or field is None:
        return None
    hour, minute = (int(part) for part in found[0][:-3].split(":"))
    done = field.value == f"{hour % 12 + 12 * found[0].endswith('PM'):02d}:{minute:02d}"
    return first(None if done else typed(field, found[0]), submit(state))


def picked_date(state: PageState) -> PageDeed | None:
    """Open the calendar, go to the month, and click on the day."""
    found, field = DATE.search(state.utterance), at(fields(state), 0)
    if found is None or field is None:
        return None
    if field.value == found[0]:
        return submit(state)
    heads = [one.text.split(" ")[0] for one in state.elements if not one.role]
    shown = next((MONTHS.index(head) for head in heads if head in MONTHS), None)
    if shown is None:
        return click(field)
    month = int(found[1]) - 1
    if shown != month:
        return press_button(state, "Prev" if shown > month else "Next")
    return click(element_named(state, str(int(found[2])), roles=("link",)))


def nth_word(state: PageState) -> PageDeed | None:
    words = next((one.text for one in state.elements if not one.role), "").split()
    word = words[ordinal(state)].strip(PUNCTUATION) if ordinal(state) < len(words) else ""
    return first(typed(at(fields(state), 0), word), submit(state))


def table_value(state: PageState) -> PageDeed | None:
    """`Enter the value of Color into the text field`; or a form whose labels also occur in a table."""
    label = text_between(state.utterance, "value of ", " into")
    if label:
        value = after_label(state, label)
        return first(typed(at(fields(state), 0), value.text if value else ""), submit(state))
    deeds = [
        typed(field, _next_to(state, one.text.rstrip(":")))
        for one, field in pairwise(state.elements)
        if one.text.endswith(":") and field.takes_text
    ]
    return first(*deeds, submit(state))


def _next_to(state: PageState, label: str) -> str:
    """The text after the one that equals `label`."""
    texts = [one.text for one in state.elements if not one.role]
    return next((after for text, after in pairwise(texts) if text == label), "")


def radio_and_number(state: PageState) -> PageDeed | None:
    """`Check the 2nd radio button and enter the number "26" into the 1st textbox.`"""
    places = [int(number) - 1 for number in re.findall(r"(\d)(?:st|nd|rd|th)", state.utterance)]
    if len(places) < 2:
        return None
    radio = at(of_role(state, "radio"), places[0])
    return first(
        click(radio) if radio is not None and not radio.is_on else None,
        typed(at(fields(state), places[1]), first_quote(state)),
        submit(state),
    )


def option_and_button(state: PageState) -> PageDeed | None:
    wanted = text_between(state.utterance, "Choose ", " from the dropdown")
    return first(select(at(of_role(state, "select"), 0), wanted), press_button(state, first_quote(state)))


def movie_search(state: PageState) -> PageDeed | None:
    found = MOVIES.search(state.utterance)
    if found is None:
        return None
    there, label = list[tuple[PageElement, int]](), ""
    for one in state.elements:
        label = one.text.lower() if not one.role else label
        if one.role == "textbox":
            there.append((one, next((number for word, number in LABELS.items() if word in label), 0)))
    left = {1, 2, 3} - {part for _, part in there}  # values without a label go to the remaining field
    return first(*(typed(field, found[part or min(left, default=1)]) for field, part in there), submit(state))


def completed(state: PageState) -> PageDeed | None:
    """Type the beginning, choose the entry that begins and ends as requested, submit."""
    parts, field = quotes(state), at(fields(state), 0)
    if field is None or not parts:
        return None
    start, end = parts[0], parts[1] if len(parts) > 1 else ""

    def fits(text: str) -> bool:
        return text.startswith(start) and text.endswith(end)

    if fits(field.value) and field.value != start:
        return submit(state)
    entry = next((one for one in of_role(state) if one.role not in ("textbox", "button") and fits(one.text)), None)
    return first(click(entry), typed(field, start), submit(state))


def spinner(state: PageState) -> PageDeed | None:
    """The first button counts up, the second down."""
    found, field = re.search(r"Select (-?\d+)", state.utterance), at(fields(state), 0)
    if found is None or field is None or not field.value.lstrip("-").isdigit():
        return None
    left = int(found[1]) - int(field.value)
    return click(at(of_role(state, "button"), 0 if left > 0 else 1)) if left else submit(state)


def generated(state: PageState) -> PageDeed | None:
    """Generate until the number is as requested, then submit."""
    shown = next((one.text for one in state.elements if not one.role), "")
    found = re.search(r"(less|greater) than (\d+)", state.utterance)
    number = int(shown) if shown.lstrip("-").isdigit() else None
    if found is not None:
        fits = number is not None and (number < int(found[2]) if found[1] == "less" else number > int(found[2]))
    else:
        fits = number is not None and number % 2 == (1 if "odd" in state.utterance else 0)
    return submit(state) if fits else press_button(state, "Generate")


def ticket(state: PageState) -> PageDeed | None:
    """The cheapest or most expensive ticket, or the one with the shortest or longest flight."""
    offers, minutes, costs = list[PageElement](), list[int](), list[int]()
    for one in state.elements:
        if not one.role and (found := re.fullmatch(r"(\d+)h (\d+)m", one.text)):
            minutes.append(60 * int(found[1]) + int(found[2]))
        elif one.role == "button" and (found := re.search(r"\$(\d+)", one.text)):
            offers.append(one)
            costs.append(int(found[1]))
    numbers = minutes if "duration" in state.utterance else costs
    if not offers or len(numbers) != len(offers):
        return None
    most = re.search(r"longest|expensive|greatest", state.utterance) is not None
    return click(offers[numbers.index(max(numbers) if most else min(numbers))])


def searched(state: PageState) -> PageDeed | None:
    """Search, then go to the page of results that has the nth one, three per page."""
    if (deed := typed(at(fields(state), 0), first_quote(state))) is not None:
        return deed
    results = [one for one in of_role(state, "link") if not one.text.isdigit() and len(one.text) > 2]
    pages = [one for one in of_role(state, "link") if one.text.isdigit()]
    if not results:
        return press_button(state, "Search")
    number = ordinal(state)
    wanted = number // 3 + 1
    page = next((one for one in pages if int(one.text) == wanted), None)
    if page is not None and not _page_is_open(state, wanted):
        return click(page)
    return click(at(results, number % 3))


def _page_is_open(state: PageState, wanted: int) -> bool:
    """Whether a page of results is open: after a click its link keeps the focus. The first page is open at once."""
    opened = next((one for one in state.elements if one.role == "link" and one.text.isdigit() and one.focused), None)
    return int(opened.text) == wanted if opened is not None else wanted == 1
