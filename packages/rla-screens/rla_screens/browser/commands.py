"""Actions as text: `click 17`, `type "Ada" in 12`, `select "Red" in 3`, `press Enter`, `drag 2 to 5`, `done`.

All possible commands are enumerated, so the texts to type must be known: they are the quotations in the page's
utterance, or else the words of the utterance and of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rla_screens.browser.deeds import DeedKind, PageDeed
from rla_screens.browser.state import PageElement, PageState

DONE = "done"
MOST_COMMANDS, MOST_WORDS, LONGEST_TYPED = 300, 60, 80
FORMS = {
    DeedKind.CLICK: re.compile(r"click (?P<ref>[0-9]{1,4})"),
    DeedKind.HOVER: re.compile(r"hover (?P<ref>[0-9]{1,4})"),
    DeedKind.TYPE: re.compile(r'type "(?P<text>[^\n]{1,200})" in (?P<ref>[0-9]{1,4})'),
    DeedKind.SELECT: re.compile(r'select "(?P<text>[^\n]{1,300})" in (?P<ref>[0-9]{1,4})'),
    DeedKind.PRESS: re.compile(r"press (?P<text>Enter|Tab|Escape|Up|Down|Left|Right)"),
    DeedKind.DRAG: re.compile(r"drag (?P<ref>[0-9]{1,4}) to (?P<to>[0-9]{1,4})"),
    DeedKind.DONE: re.compile(DONE),
}
KEYS = {"Up": "ArrowUp", "Down": "ArrowDown", "Left": "ArrowLeft", "Right": "ArrowRight"}
TIMES = re.compile(r"\b\d{1,2}:\d\d [AP]M\b")
QUOTES = re.compile(r'"([^"]{1,80})"')
EDGES = ".,;:!?'\"()[]"


def command_of(deed: PageDeed) -> str:
    """A deed as a command."""
    match deed.kind:
        case DeedKind.CLICK | DeedKind.HOVER:
            return f"{deed.kind} {deed.ref}"
        case DeedKind.DRAG:
            return f"drag {deed.ref} to {deed.to}"
        case DeedKind.PRESS:
            names = {key: name for name, key in KEYS.items()}
            return f"press {names.get(deed.text, deed.text)}"
        case DeedKind.DONE:
            return DONE
    return f'{deed.kind} "{deed.text}" in {deed.ref}'


def deed_of(command: str) -> PageDeed | None:
    """A command as a deed; None if it is not a command. Its elements need not exist."""
    for kind, form in FORMS.items():
        found = form.fullmatch(command.strip())
        if found is not None:
            said = found.groupdict()
            text = said.get("text", "")
            return PageDeed(
                kind=kind,
                ref=int(said.get("ref", 0)),
                to=int(said.get("to", 0)),
                text=KEYS.get(text, text) if kind is DeedKind.PRESS else text,
            )
    return None


def page_commands(state: PageState) -> tuple[str, ...]:
    """All possible commands, in the order of the page; at most MOST_COMMANDS."""
    deeds = [deed for element in state.elements if element.ref for deed in _deeds_on(element, state)]
    if any(element.focused and element.takes_text for element in state.elements):
        deeds.append(PageDeed(kind=DeedKind.PRESS, text="Enter"))
    return (*dict.fromkeys(map(command_of, deeds[: MOST_COMMANDS - 1])), DONE)


def _deeds_on(element: PageElement, state: PageState) -> Iterator[PageDeed]:
    """All deeds that an element allows."""
    if element.disabled:
        return
    yield PageDeed(kind=DeedKind.CLICK, ref=element.ref)
    if element.role == "menuitem":
        yield PageDeed(kind=DeedKind.HOVER, ref=element.ref)
    if element.takes_text:
        yield from (PageDeed(kind=DeedKind.TYPE, ref=element.ref, text=text) for text in typed_texts(state))
    for option in element.options:
        yield PageDeed(kind=DeedKind.SELECT, ref=element.ref, text=option)


def typed_texts(state: PageState) -> tuple[str, ...]:
    """The texts that may be typed. They are the quotations of the utterance, also in upper or lower case if it mentions
    case. If it quotes only labels of buttons, they are its words, times of day, and the words and fields of the page.
    """
    labels = {element.text.lower() for element in state.elements if element.role == "button"}
    quoted = [text.strip() for text in QUOTES.findall(state.utterance)]
    quoted = [text for text in quoted if text and text.lower() not in labels]
    if quoted:
        cases = (str.upper, str.lower) if " case" in state.utterance else ()
        return tuple(dict.fromkeys(text for each in quoted for text in (each, *(case(each) for case in cases))))
    shown = [text for element in state.elements for text in (element.text, element.value)]
    words = [word.strip(EDGES) for text in (state.utterance, *shown) for word in text.split()]
    whole = [*TIMES.findall(state.utterance), *(one.value for one in state.elements if one.role == "textarea")]
    found = dict.fromkeys(text for text in (*whole, *words) if text and len(text) <= LONGEST_TYPED and '"' not in text)
    return tuple(found)[:MOST_WORDS]
