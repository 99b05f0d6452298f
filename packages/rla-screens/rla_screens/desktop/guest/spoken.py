"""`pyautogui` programs of the kind that OSWorld's tasks and agents send, translated to deeds: parsed, never run.

    python -c "import pyautogui; import time; pyautogui.FAILSAFE = False; pyautogui.hotkey('ctrl', 's'); time.sleep(1)"

If every statement of a program is one of these calls with plain values, it becomes a list of deeds. Otherwise the
result is None, and the program is run as it is. This saves a new interpreter for each click, and `pyautogui` itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LONGEST = 20_000  # characters of a program
NOTCH = 40  # pixels per unit of `scroll`
Deed = dict[str, Any]
CLICKS = {
    "click": ("left", 1),
    "leftClick": ("left", 1),
    "rightClick": ("right", 1),
    "middleClick": ("middle", 1),
    "doubleClick": ("left", 2),
    "tripleClick": ("left", 3),
}
NAMES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(CLICKS, ("x", "y", "clicks", "interval", "button")),
    **dict.fromkeys(("moveTo", "moveRel", "dragTo", "mouseDown", "mouseUp"), ("x", "y", "duration", "button")),
    **dict.fromkeys(("press", "keyDown", "keyUp"), ("key", "presses", "interval")),
    **dict.fromkeys(("write", "typewrite"), ("text", "interval")),
    **dict.fromkeys(("scroll", "hscroll", "vscroll"), ("amount", "x", "y")),
    "sleep": ("seconds",),
}
OTHER_WORDS = {"message": "text", "keys": "key", "clicks": "clicks"}
MODULES = frozenset({"pyautogui", "time"})


def deeds_of_program(source: str) -> list[Deed] | None:
    """None if any part of the program is unknown."""
    if len(source) > LONGEST:
        return None
    try:
        tree = ast.parse(source)
        return [deed for statement in tree.body for deed in _of_statement(statement)]
    except (SyntaxError, ValueError, TypeError, LookupError, RecursionError, MemoryError):
        return None


def _of_statement(statement: ast.stmt) -> list[Deed]:
    """Raises ValueError for an unknown statement."""
    match statement:
        case ast.Import(names=names) if all(name.name in MODULES and name.asname is None for name in names):
            return []
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="pyautogui"))], value=ast.Constant()):
            return []
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) as call):
            if (module == "time") == (name == "sleep") and module in MODULES:
                return _of_call(name, call)
    raise ValueError(ast.dump(statement)[:100])


def _of_call(name: str, call: ast.Call) -> list[Deed]:
    values = [ast.literal_eval(argument) for argument in call.args]
    named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    if name == "hotkey":
        keys = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
        return [{"motion": "press", "keys": list(map(str, keys))}]
    words = NAMES[name]
    given = dict(zip(words, values, strict=False)) | {
        OTHER_WORDS.get(word, word): value for word, value in named.items()
    }
    if len(values) > len(words):
        raise ValueError(name)
    return SAID[name](name, given)


def _at_of(given: Mapping[str, Any]) -> list[int] | None:
    x, y = given.get("x"), given.get("y")
    if isinstance(x, list | tuple):
        x, y = x
    return None if x is None or y is None else [round(float(x)), round(float(y))]


def clicked(name: str, given: Mapping[str, Any]) -> list[Deed]:
    button, count = CLICKS[name]
    wanted = {"button": given.get("button", button), "count": int(given.get("clicks", count))}
    return [{"motion": "click", "at": _at_of(given), **wanted}]


def pressed(name: str, given: Mapping[str, Any]) -> list[Deed]:
    keys = given["key"]
    motion = {"press": "press", "keyDown": "key_down", "keyUp": "key_up"}[name]
    each = [{"motion": motion, "keys": [str(key)]} for key in (keys if isinstance(keys, list | tuple) else [keys])]
    return each * int(given.get("presses", 1))


def turned(name: str, given: Mapping[str, Any]) -> list[Deed]:
    amount = round(float(given["amount"])) * (NOTCH if abs(float(given["amount"])) < NOTCH else 1)
    turn = {"right": amount} if name == "hscroll" else {"down": -amount}
    return [{"motion": "scroll", "at": _at_of(given), **turn}]


def moved(name: str, given: Mapping[str, Any]) -> list[Deed]:
    if name == "dragTo":
        return [{"motion": "drag", "to": _at_of(given), "button": given.get("button", "left")}]
    motion = {"moveTo": "move", "mouseDown": "down", "mouseUp": "up"}[name]
    return [{"motion": motion, "at": _at_of(given), "button": given.get("button", "left")}]


SAID: Mapping[str, Callable[[str, Mapping[str, Any]], list[Deed]]] = {
    **dict.fromkeys(CLICKS, clicked),
    **dict.fromkeys(("press", "keyDown", "keyUp"), pressed),
    **dict.fromkeys(("scroll", "hscroll", "vscroll"), turned),
    **dict.fromkeys(("moveTo", "dragTo", "mouseDown", "mouseUp"), moved),
    **dict.fromkeys(("write", "typewrite"), lambda _, given: [{"motion": "type", "text": str(given["text"])}]),
    "sleep": lambda _, given: [{"motion": "wait", "wait": 1000 * float(given["seconds"])}],
}
