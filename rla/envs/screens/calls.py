"""Deeds as calls by the names of BrowserGym's actions on coordinates: `mouse_click(512, 340)`, `keyboard_type("Ada")`.

    scroll(delta_x, delta_y)   mouse_move(x, y)   mouse_click(x, y, button="left")   mouse_dblclick(x, y, ...)
    mouse_down(x, y, ...)   mouse_up(x, y, ...)   mouse_drag_and_drop(from_x, from_y, to_x, to_y)
    keyboard_press(key)   keyboard_down(key)   keyboard_up(key)   keyboard_type(text)   keyboard_insert_text(text)
    noop(wait_ms=1000)   done()   fail()

Points are from 0 to 999. A call is read as data, by one pass over the text: nothing is evaluated, and only numbers and
quoted texts are arguments. A reply with anything beside its call, two calls among it, is no action.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from rla.envs.screens.deeds import (
    LONGEST_TYPED,
    MOST_TURNS,
    MOST_WAIT,
    Button,
    Motion,
    ScreenDeed,
    read_amount,
    read_point,
)
from rla.envs.screens.keys import chord_of

CALL = re.compile(r"([a-z_]{1,30})\(")
NAME = re.compile(r"([a-z_]{1,20})=")
NUMBER = re.compile(r"[+-]?\d{1,6}(?:\.\d{1,6})?(?![\w.])")
TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'")
ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
LONGEST_CALL = 2 * LONGEST_TYPED + 200
PAUSE = 1000  # ms that noop waits
BUTTONS: Mapping[str, Button] = {"left": "left", "middle": "middle", "right": "right"}
# The arguments of each action in order; those behind the bar may be left out.
ARGUMENTS = {
    "scroll": "delta_x delta_y |",
    "mouse_move": "x y |",
    "mouse_click": "x y | button",
    "mouse_dblclick": "x y | button",
    "mouse_down": "x y | button",
    "mouse_up": "x y | button",
    "mouse_drag_and_drop": "from_x from_y to_x to_y |",
    "keyboard_press": "key |",
    "keyboard_down": "key |",
    "keyboard_up": "key |",
    "keyboard_type": "text |",
    "keyboard_insert_text": "text |",
    "noop": "| wait_ms",
    "done": "|",
    "fail": "|",
}
POINTED = {
    "mouse_move": (Motion.MOVE, 1),
    "mouse_click": (Motion.CLICK, 1),
    "mouse_dblclick": (Motion.CLICK, 2),
    "mouse_down": (Motion.DOWN, 1),
    "mouse_up": (Motion.UP, 1),
}
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
    given = given_arguments(text, start.end(), ARGUMENTS[start[1]])
    return None if given is None else made_deed(start[1], given)


def given_arguments(text: str, at: int, known: str) -> dict[str, str] | None:
    """The arguments behind an opening parenthesis, up to the closing one that ends the text."""
    needed, _, optional = known.partition("|")
    order = [*needed.split(), *optional.split()]
    found: dict[str, str] = {}
    named = False
    while at < len(text) and text[at] != ")":
        if found and text[at] != ",":
            return None
        at = skip_spaces(text, at + 1 if found else at)
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
        at = skip_spaces(text, value.end())
    whole = text[at:] == ")" and set(needed.split()) <= found.keys()
    return found if whole else None


def skip_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t":
        at += 1
    return at


def made_deed(name: str, given: Mapping[str, str]) -> ScreenDeed | None:
    """The deed of an action with its arguments as they were written; None where one is out of bounds."""
    if name in POINTED:
        motion, count = POINTED[name]
        at = read_point(given["x"], given["y"])
        button = BUTTONS.get(unquoted(given["button"]) if "button" in given else "left")
        return None if at is None or button is None else ScreenDeed(motion=motion, at=at, button=button, count=count)
    if name in PRESSED:
        keys = chord_of(unquoted(given["key"]))
        return None if keys is None else ScreenDeed(motion=PRESSED[name], keys=keys)
    return OTHERS[name](given)


def dragged(given: Mapping[str, str]) -> ScreenDeed | None:
    start, end = read_point(given["from_x"], given["from_y"]), read_point(given["to_x"], given["to_y"])
    return None if start is None or end is None else ScreenDeed(motion=Motion.DRAG, at=start, to=end)


def scrolled(given: Mapping[str, str]) -> ScreenDeed | None:
    right, down = (read_amount(given[name], MOST_TURNS) for name in ("delta_x", "delta_y"))
    return None if right is None or down is None else ScreenDeed(motion=Motion.SCROLL, right=right, down=down)


def typed(given: Mapping[str, str]) -> ScreenDeed | None:
    text = unquoted(given["text"])
    return ScreenDeed(motion=Motion.TYPE, text=text) if 0 < len(text) <= LONGEST_TYPED else None


def waited(given: Mapping[str, str]) -> ScreenDeed | None:
    wait = read_amount(given.get("wait_ms", str(PAUSE)), MOST_WAIT)
    return None if wait is None or wait < 0 else ScreenDeed(motion=Motion.WAIT, wait=wait)


def ended(succeeded: bool) -> Callable[[Mapping[str, str]], ScreenDeed | None]:
    return lambda _: ScreenDeed(motion=Motion.DONE, succeeded=succeeded)


OTHERS: Mapping[str, Callable[[Mapping[str, str]], ScreenDeed | None]] = {
    "mouse_drag_and_drop": dragged,
    "scroll": scrolled,
    "keyboard_type": typed,
    "keyboard_insert_text": typed,
    "noop": waited,
    "done": ended(True),
    "fail": ended(False),
}


def unquoted(text: str) -> str:
    """A quoted text without its quotation marks; only the escapes of ESCAPES stand for something."""
    inside = text[1:-1]
    return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[0]), inside, flags=re.DOTALL)


def call_of_deed(deed: ScreenDeed) -> str:
    """A deed as a call; `deed_of_call` reads it back."""
    x, y = deed.at or (0, 0)
    button = "" if deed.button == "left" else f", {json.dumps(deed.button)}"
    match deed.motion:
        case Motion.CLICK:
            return f"{'mouse_dblclick' if deed.count == 2 else 'mouse_click'}({x}, {y}{button})"
        case Motion.MOVE | Motion.DOWN | Motion.UP:
            return f"mouse_{deed.motion}({x}, {y}{button})"
        case Motion.DRAG:
            return "mouse_drag_and_drop({}, {}, {}, {})".format(x, y, *(deed.to or (0, 0)))
        case Motion.SCROLL:
            return f"scroll({deed.right}, {deed.down})"
        case Motion.TYPE:
            return f"keyboard_type({json.dumps(deed.text, ensure_ascii=False)})"
        case Motion.WAIT:
            return f"noop({deed.wait})"
        case Motion.DONE:
            return "done()" if deed.succeeded else "fail()"
    name = {Motion.PRESS: "press", Motion.KEY_DOWN: "down", Motion.KEY_UP: "up"}[deed.motion]
    return f"keyboard_{name}({json.dumps('+'.join(deed.keys))})"
