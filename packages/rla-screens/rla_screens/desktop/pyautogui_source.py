"""Deeds as a program of `pyautogui`, for guest servers without our endpoints. Every text is a literal by `repr`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEAD = ("import pyautogui", "import time", "pyautogui.FAILSAFE = False")
NOTCH = 40  # pixels per turn of the wheel
NAMES = {
    "Control": "ctrl",
    "Meta": "win",
    "ArrowUp": "up",
    "ArrowDown": "down",
    "ArrowLeft": "left",
    "ArrowRight": "right",
    " ": "space",
}


def program_of_deeds(deeds: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join([*HEAD, *(line for deed in deeds for line in _calls_of_deed(deed))])


def _calls_of_deed(deed: Mapping[str, Any]) -> list[str]:
    """The calls of a deed in pixels. Raises KeyError for an unknown motion."""
    at = deed.get("at")
    first = [f"pyautogui.moveTo({int(at[0])}, {int(at[1])})"] if at is not None else []
    button = repr(str(deed.get("button", "left")))
    match deed["motion"]:
        case "move":
            return first
        case "click":
            return [*first, f"pyautogui.click(clicks={int(deed.get('count', 1))}, interval=0.05, button={button})"]
        case "down" | "up":
            return [*first, f"pyautogui.mouse{str(deed['motion']).title()}(button={button})"]
        case "drag":
            x, y = deed["to"]
            return [*first, f"pyautogui.dragTo({int(x)}, {int(y)}, duration=0.5, button={button})"]
        case "scroll":
            turns = [("scroll", -int(deed.get("down", 0))), ("hscroll", int(deed.get("right", 0)))]
            return first + [f"pyautogui.{name}({notches(pixels)})" for name, pixels in turns if pixels]
        case "type":
            return _typed_calls(str(deed["text"]))
        case "press":
            return [f"pyautogui.hotkey({', '.join(repr(_key_word(key)) for key in deed['keys'])})"]
        case "key_down" | "key_up":
            name = {"key_down": "keyDown", "key_up": "keyUp"}[deed["motion"]]
            return [f"pyautogui.{name}({_key_word(key)!r})" for key in deed["keys"]]
        case "wait":
            return [f"time.sleep({min(60.0, float(deed['wait']) / 1000):g})"]
    raise KeyError(deed["motion"])


def _typed_calls(text: str) -> list[str]:
    """pyautogui types `<` as `>` (its issue 198), so that key is pressed in another way."""
    parts = text.split("<")
    lines = [f"pyautogui.typewrite({parts[0]!r})"] if parts[0] else []
    for part in parts[1:]:
        lines += ["pyautogui.hotkey('shift', ',')", *([f"pyautogui.typewrite({part!r})"] if part else [])]
    return lines


def _key_word(name: str) -> str:
    return NAMES.get(name, name if len(name) == 1 else name.lower())


def notches(pixels: int) -> int:
    return (1 if pixels > 0 else -1) * -(-abs(pixels) // NOTCH)
