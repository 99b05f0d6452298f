"""Deeds as calls with the names of BrowserGym's coordinate actions: `mouse_click(512, 340)`, `keyboard_type("Ada")`.

    scroll(delta_x, delta_y)   mouse_move(x, y)   mouse_click(x, y, button="left")   mouse_dblclick(x, y, ...)
    mouse_down(x, y, ...)   mouse_up(x, y, ...)   mouse_drag_and_drop(from_x, from_y, to_x, to_y)
    mouse_tripleclick(x, y, ...), which BrowserGym does not have
    keyboard_press(key)   keyboard_down(key)   keyboard_up(key)   keyboard_type(text)   keyboard_insert_text(text)
    noop(wait_ms=1000)   done()   fail()

Coordinates are from 0 to 999. Without x and y, clicks and buttons apply at the mouse's position, and a drag without
from_x and from_y begins there: `mouse_click()`, `mouse_drag_and_drop(to_x=5, to_y=6)`. A call is parsed as data, in one
pass over the text: nothing is evaluated, and arguments are only numbers and quoted texts. A reply with anything besides
its one call is not an action.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rla_screens.screens.deeds import (
    LONGEST_TYPED,
    MOST_TURNS,
    MOST_WAIT,
    Button,
    Motion,
    Point,
    ScreenDeed,
    read_amount,
    read_point,
)
from rla_screens.screens.keys import chord_of

CALL = re.compile(r"([a-z_]{1,30})\(")
NAME = re.compile(r"([a-z_]{1,20})=")
NUMBER = re.compile(r"[+-]?\d{1,6}(?:\.\d{1,6})?(?![\w.])")
TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'")
ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
LONGEST_CALL = 2 * LONGEST_TYPED + 200
PAUSE = 1000  # ms that noop waits
BUTTONS: Mapping[str, Button] = {"left": "left", "middle": "middle", "right": "right"}
# The arguments of each action in order; those with a question mark are optional.
ARGUMENTS = {
    "scroll": "delta_x delta_y",
    "mouse_move": "x y",
    "mouse_click": "x? y? button?",
    "mouse_dblclick": "x? y? button?",
    "mouse_tripleclick": "x? y? button?",
    "mouse_down": "x? y? button?",
    "mouse_up": "x? y? button?",
    "mouse_drag_and_drop": "from_x? from_y? to_x to_y",
    "keyboard_press": "key",
    "keyboard_down": "key",
    "keyboard_up": "key",
    "keyboard_type": "text",
    "keyboard_insert_text": "text",
    "noop": "wait_ms?",
    "done": "",
    "fail": "",
}
POINTED = {
    "mouse_move": (Motion.MOVE, 1),
    "mouse_click": (Motion.CLICK, 1),
    "mouse_dblclick": (Motion.CLICK, 2),
    "mouse_tripleclick": (Motion.CLICK, 3),
    "mouse_down": (Motion.DOWN, 1),
    "mouse_up": (Motion.UP, 1),
}
CLICKS = {count: name for name, (motion, count) in POINTED.items() if motion is Motion.CLICK}
PRESSED = {
    "keyboard_press": Motion.PRESS,
    "keyboard_down": Motion.KEY_DOWN,
    "keyboard_up": Motion.KEY_UP,
}
QUOTED_ARGUMENTS = frozenset({"button", "key", "text"})


def deed_of_call(text: str) -> ScreenDeed | None:
    """A call as a deed; None for every text that is not exactly one call of a known action."""
    text = text.strip()
    start = CALL.match(text) if len(text) <= LONGEST_CALL else None
    if start is None or start[1] not in ARGUMENTS:
        return None
    given = _given_arguments(text, start.end(), ARGUMENTS[start[1]])
    return None if given is None else _made_deed(start[1], given)


def _given_arguments(text: str, at: int, known: str) -> dict[str, str] | None:
    """The arguments behind an opening parenthesis, up to the closing one that ends the text."""
    order = [name.rstrip("?") for name in known.split()]
    needed = {name for name in known.split() if not name.endswith("?")}
    found: dict[str, str] = {}
    named = False
    while at < len(text) and text[at] != ")":
        if found and text[at] != ",":
            return None
        at = _skip_spaces(text, at + 1 if found else at)
        name = NAME.match(text, at)
        named = named or name is not None
        if (named and name is None) or (name is None and len(found) == len(order)):
            return None
        key = name[1] if name is not None else order[len(found)]
        at = name.end() if name is not None else at
        value = (TEXT if key in QUOTED_ARGUMENTS else NUMBER).match(text, at)
        if value is None or key not in order or key in found:
            return None
        found[key] = value[0]
        at = _skip_spaces(text, value.end())
    whole = text[at:] == ")" and needed <= found.keys()
    return found if whole else None


def _skip_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t":
        at += 1
    return at


def _made_deed(name: str, given: Mapping[str, str]) -> ScreenDeed | None:
    """The deed of an action with its arguments as written; None if an argument is out of bounds."""
    if name in POINTED:
        motion, count = POINTED[name]
        fits, at = where(given, "x", "y")
        button = BUTTONS.get(_unquoted(given["button"]) if "button" in given else "left")
        if not fits or button is None:
            return None
        return ScreenDeed(motion=motion, at=at, button=button, count=count)
    if name in PRESSED:
        keys = chord_of(_unquoted(given["key"]))
        return None if keys is None else ScreenDeed(motion=PRESSED[name], keys=keys)
    return OTHERS[name](given)


def where(given: Mapping[str, str], x: str, y: str) -> tuple[bool, Point | None]:
    """Whether a point is valid, and the point: None if neither coordinate is given."""
    if x not in given and y not in given:
        return True, None
    at = read_point(given.get(x, ""), given.get(y, ""))
    return at is not None, at


def _dragged(given: Mapping[str, str]) -> ScreenDeed | None:
    fits, start = where(given, "from_x", "from_y")
    end = read_point(given["to_x"], given["to_y"])
    return ScreenDeed(motion=Motion.DRAG, at=start, to=end) if fits and end is not None else None


def scrolled(given: Mapping[str, str]) -> ScreenDeed | None:
    right, down = (read_amount(given[name], MOST_TURNS) for name in ("delta_x", "delta_y"))
    return None if right is None or down is None else ScreenDeed(motion=Motion.SCROLL, right=right, down=down)


def typed(given: Mapping[str, str]) -> ScreenDeed | None:
    text = _unquoted(given["text"])
    return ScreenDeed(motion=Motion.TYPE, text=text) if 0 < len(text) <= LONGEST_TYPED else None


def waited(given: Mapping[str, str]) -> ScreenDeed | None:
    wait = read_amount(given.get("wait_ms", str(PAUSE)), MOST_WAIT)
    return None if wait is None or wait < 0 else ScreenDeed(motion=Motion.WAIT, wait=wait)


def ended(succeeded: bool) -> Callable[[Mapping[str, str]], ScreenDeed | None]:
    return lambda _: ScreenDeed(motion=Motion.DONE, succeeded=succeeded)


OTHERS: Mapping[str, Callable[[Mapping[str, str]], ScreenDeed | None]] = {
    "mouse_drag_and_drop": _dragged,
    "scroll": scrolled,
    "keyboard_type": typed,
    "keyboard_insert_text": typed,
    "noop": waited,
    "done": ended(True),
    "fail": ended(False),
}


def _unquoted(text: str) -> str:
    """A quoted text without its quotation marks; only the escapes in ESCAPES are replaced."""
    inside = text[1:-1]
    return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[0]), inside, flags=re.DOTALL)


def _quoted_argument(text: str) -> str:
    """A text as an argument, with the escapes that `_unquoted` knows and no others."""
    for sign, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(sign, escape)
    return f'"{text}"'


def call_of_deed(deed: ScreenDeed) -> str:
    """A deed as a call; `deed_of_call` reads it back."""
    at = [] if deed.at is None else [str(number) for number in deed.at]
    named = "" if at else "button="
    button = [] if deed.button == "left" else [named + _quoted_argument(deed.button)]
    pointed = ", ".join([*at, *button])
    match deed.motion:
        case Motion.CLICK:
            return f"{CLICKS[deed.count]}({pointed})"
        case Motion.MOVE | Motion.DOWN | Motion.UP:
            return f"mouse_{deed.motion}({pointed})"
        case Motion.DRAG:
            to_x, to_y = deed.to or (0, 0)
            end = [f"{to_x}", f"{to_y}"] if at else [f"to_x={to_x}", f"to_y={to_y}"]
            return f"mouse_drag_and_drop({', '.join([*at, *end])})"
        case Motion.SCROLL:
            return f"scroll({deed.right}, {deed.down})"
        case Motion.TYPE:
            return f"keyboard_type({_quoted_argument(deed.text)})"
        case Motion.WAIT:
            return f"noop({deed.wait})"
        case Motion.DONE:
            return "done()" if deed.succeeded else "fail()"
    name = {Motion.PRESS: "press", Motion.KEY_DOWN: "down", Motion.KEY_UP: "up"}[deed.motion]
    return f"keyboard_{name}({_quoted_argument('+'.join(deed.keys))})"
