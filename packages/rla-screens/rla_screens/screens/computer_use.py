"""Deeds as calls of the tool that Qwen2.5-VL and Qwen3-VL were trained on, in the Hermes format (the published
setting).

    <tool_call>
    {"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [512, 340]}}
    </tool_call>

A reply may contain text besides the call. The last call counts, and text inside it is data. Actions: `key`, `type`,
`mouse_move`, `left_click`, `left_click_drag`, `right_click`, `middle_click`, `double_click`, `scroll`, `wait`,
`terminate`. The published agent describes `triple_click` and `hscroll` but does not accept them; here they work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rla_bridges.lenient_json import lenient_decode, lenient_loads

from rla.text import after_thinking
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
from rla_screens.screens.keys import chord

TOOL = "computer_use"
OPEN, CLOSE = "<tool_call>", "</tool_call>"
LONGEST_CALL = 4 * LONGEST_TYPED
MOST_BRACKETS = 20  # of one call
CLICKS: Mapping[str, tuple[Button, int]] = {
    "left_click": ("left", 1),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
}
ACTIONS = (*CLICKS, "mouse_move", "left_click_drag", "key", "type", "scroll", "hscroll", "wait", "terminate")
SCHEMA: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": (
            "Use the mouse and the keyboard of a computer, and read its screen in screenshots. "
            "The screen has 1000 x 1000 points: 0 to 999 from left to right, and from top to bottom."
        ),
        "parameters": {
            "type": "object",
            "required": ["action"],
            "properties": {
                "action": {"type": "string", "enum": list(ACTIONS)},
                "coordinate": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "x and y of the point that the mouse goes to",
                },
                "keys": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "of `key`: pressed together",
                },
                "text": {"type": "string", "description": "of `type`"},
                "pixels": {"type": "number", "description": "of `scroll`: up where positive, down where negative"},
                "time": {"type": "number", "description": "of `wait`: seconds"},
                "status": {"type": "string", "enum": ["success", "failure"], "description": "of `terminate`"},
            },
        },
    },
}


def deed_of_tool_call(reply: str) -> ScreenDeed | None:
    """The deed of the last call of a reply; None if it has no valid call."""
    arguments = _last_arguments(reply)
    action = None if arguments is None else arguments.get("action")
    if arguments is None or not isinstance(action, str):
        return None
    at = _given_point(arguments.get("coordinate"))
    if action in CLICKS:
        button, count = CLICKS[action]
        spoilt = at is None and "coordinate" in arguments
        return None if spoilt else ScreenDeed(motion=Motion.CLICK, at=at, button=button, count=count)
    if action in ("mouse_move", "left_click_drag"):
        if at is None:
            return None
        drags = action == "left_click_drag"
        return ScreenDeed(motion=Motion.DRAG, to=at) if drags else ScreenDeed(motion=Motion.MOVE, at=at)
    return _unpointed(action, arguments)


def _unpointed(action: str, arguments: Mapping[str, Any]) -> ScreenDeed | None:
    """Actions without a point."""
    match action:
        case "key":
            keys = arguments.get("keys")
            names = keys if isinstance(keys, list) else [keys]
            known = chord([name for name in names if isinstance(name, str)])
            return None if known is None or len(known) != len(names) else ScreenDeed(motion=Motion.PRESS, keys=known)
        case "type":
            text = arguments.get("text")
            fits = isinstance(text, str) and 0 < len(text) <= LONGEST_TYPED
            return ScreenDeed(motion=Motion.TYPE, text=text) if fits and isinstance(text, str) else None
        case "scroll" | "hscroll":
            pixels = _given_amount(arguments.get("pixels"), MOST_TURNS)
            if pixels is None:
                return None
            across = action == "hscroll"
            return ScreenDeed(motion=Motion.SCROLL, right=pixels * across, down=-pixels * (not across))
        case "wait":
            seconds = _given_amount(arguments.get("time", 1), MOST_WAIT // 1000)
            return None if seconds is None or seconds < 0 else ScreenDeed(motion=Motion.WAIT, wait=1000 * seconds)
        case "terminate":
            return ScreenDeed(motion=Motion.DONE, succeeded=arguments.get("status") != "failure")
    return None


def _last_arguments(reply: str) -> Mapping[str, Any] | None:
    """The arguments of the last call of the tool; None if it cannot be parsed."""
    reply = after_thinking(reply)
    start = reply.rfind(OPEN)
    text = reply[start + len(OPEN) :].strip() if start >= 0 else ""
    if len(text) > LONGEST_CALL or text.count("[") + text.count("{") > MOST_BRACKETS:
        return None
    try:
        call, end = lenient_decode(text)
    except ValueError:
        return None
    closed = text[end:].strip() in ("", CLOSE)
    arguments = call.get("arguments") if isinstance(call, dict) and call.get("name") == TOOL else None
    if isinstance(arguments, str):
        try:
            arguments = lenient_loads(arguments)
        except ValueError:
            return None
    return arguments if closed and isinstance(arguments, dict) else None


def _given_point(value: Any) -> Point | None:
    pair = value if isinstance(value, list) and len(value) == 2 else ()
    return read_point(*map(_numeral, pair)) if pair else None


def _given_amount(value: Any, most: int) -> int | None:
    return read_amount(_numeral(value), most)


def _numeral(value: Any) -> str:
    """A JSON number as text; empty for everything else, including booleans."""
    return str(value) if type(value) in (int, float) else ""


def tool_call_of(deed: ScreenDeed) -> str:
    """A deed as a call; `deed_of_tool_call` reads it back, except for deeds that the tool does not have."""
    arguments: dict[str, Any] = {}
    match deed.motion:
        case Motion.CLICK:
            name = next(word for word, said in CLICKS.items() if said == (deed.button, deed.count))
            arguments = {"action": name} | ({"coordinate": list(deed.at)} if deed.at else {})
        case Motion.MOVE:
            arguments = {"action": "mouse_move", "coordinate": list(deed.at or (0, 0))}
        case Motion.DRAG:
            arguments = {"action": "left_click_drag", "coordinate": list(deed.to or (0, 0))}
        case Motion.TYPE:
            arguments = {"action": "type", "text": deed.text}
        case Motion.PRESS:
            arguments = {"action": "key", "keys": list(deed.keys)}
        case Motion.SCROLL:
            across = {"action": "hscroll", "pixels": deed.right}
            arguments = across if deed.right else {"action": "scroll", "pixels": -deed.down}
        case Motion.WAIT:
            arguments = {"action": "wait", "time": deed.wait // 1000}
        case Motion.DONE:
            arguments = {"action": "terminate", "status": "success" if deed.succeeded else "failure"}
        case _:
            raise ValueError(f"{TOOL} has no word for {deed.motion}")
    return f"{OPEN}\n{json.dumps({'name': TOOL, 'arguments': arguments}, ensure_ascii=False)}\n{CLOSE}"
