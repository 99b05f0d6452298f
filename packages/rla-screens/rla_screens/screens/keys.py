"""Names of keys. Models write those of playwright (`Control+a`) or pyautogui (`ctrl`); deeds use those of DOM events.

Keys that are not in the list are refused, because drivers raise on unknown names, and browsers have keys that leave the
page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MODIFIERS = ("Alt", "Control", "Meta", "Shift")
NAMED = (
    *("ArrowDown", "ArrowLeft", "ArrowRight", "ArrowUp", "Backspace", "Delete", "End", "Enter", "Escape", "Home"),
    *("Insert", "PageDown", "PageUp", "Tab", *MODIFIERS, *(f"F{number}" for number in range(1, 13))),
)
ALIASES = {
    "ctrl": "Control",
    "control": "Control",
    "cmd": "Meta",
    "command": "Meta",
    "win": "Meta",
    "super": "Meta",
    "option": "Alt",
    "return": "Enter",
    "esc": "Escape",
    "del": "Delete",
    "space": " ",
    "spacebar": " ",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "pgup": "PageUp",
    "pgdn": "PageDown",
    "page_up": "PageUp",
    "page_down": "PageDown",
}
KNOWN = {name.lower(): name for name in NAMED} | ALIASES
TOGETHER = 4  # keys of one chord


def _key_name(text: str) -> str | None:
    """The name of a key; a single visible character is its own key. None for every other text."""
    if len(text) == 1:
        return text if text.isprintable() and text.isascii() else None
    return KNOWN.get(text.strip().lower())


def chord(names: Sequence[str]) -> tuple[str, ...] | None:
    """Keys that are pressed together; None if a key is unknown, or if there are too many keys or none."""
    keys = [_key_name(name) for name in names[: TOGETHER + 1]]
    if not keys or len(keys) > TOGETHER or None in keys:
        return None
    return tuple(key for key in keys if key is not None)


def chord_of(text: str) -> tuple[str, ...] | None:
    """`Control+a` as keys. `+` itself is a key too, alone and in `Control++`; elsewhere it separates keys."""
    names = re.findall(r"(\+|[^+]+)(?:\+|$)", text)
    return chord(names) if "+".join(names) == text else None
