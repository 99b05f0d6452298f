"""Deeds of mouse and keyboard, and the screen as a PNG file with the cursor in it."""

from __future__ import annotations

import struct
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from rla_screens.desktop.guest.restless import restless
from rla_screens.desktop.guest.xlib import Screen

BUTTONS = {"left": 1, "middle": 2, "right": 3}
UP, DOWN, LEFT, RIGHT = 4, 5, 6, 7
NOTCH = 40  # pixels per turn of the wheel
MOST_NOTCHES = 50
PAUSE_S = 0.02  # between events that applications tell apart by time
# Seconds between screenshots while the screen may still change, and how many in a row must be equal. Together this is
# longer than the 0.3 s after which LibreOffice updates its bars.
LOOK_S, LOOKS = 0.08, 7
KEYS = {
    "control": "Control_L",
    "ctrl": "Control_L",
    "ctrlleft": "Control_L",
    "ctrlright": "Control_R",
    "alt": "Alt_L",
    "altleft": "Alt_L",
    "altright": "Alt_R",
    "option": "Alt_L",
    "shift": "Shift_L",
    "shiftleft": "Shift_L",
    "shiftright": "Shift_R",
    "meta": "Super_L",
    "win": "Super_L",
    "winleft": "Super_L",
    "super": "Super_L",
    "command": "Super_L",
    "enter": "Return",
    "return": "Return",
    "\n": "Return",
    "\t": "Tab",
    "tab": "Tab",
    "esc": "Escape",
    "escape": "Escape",
    "backspace": "BackSpace",
    "del": "Delete",
    "delete": "Delete",
    "insert": "Insert",
    "home": "Home",
    "end": "End",
    "pageup": "Prior",
    "pgup": "Prior",
    "pagedown": "Next",
    "pgdn": "Next",
    "arrowup": "Up",
    "up": "Up",
    "arrowdown": "Down",
    "down": "Down",
    "arrowleft": "Left",
    "left": "Left",
    "arrowright": "Right",
    "right": "Right",
    " ": "space",
    "space": "space",
} | {f"f{number}": f"F{number}" for number in range(1, 13)}


class Hands:
    """Deeds on a screen. Calls of different threads wait for each other. `alone`: this user has no programs besides
    those on the screen.
    """

    def __init__(self, display: str, *, alone: bool = False) -> None:
        self._screen, self._alone = Screen(display), alone
        self._turn = threading.RLock()

    @property
    def size(self) -> tuple[int, int]:
        return self._screen.width, self._screen.height

    def place(self) -> tuple[int, int]:
        with self._turn:
            return self._screen.pointer()

    def do(self, deed: Mapping[str, Any]) -> None:
        """One of `move`, `click`, `down`, `up`, `drag`, `scroll`, `type`, `press`, `key_down`, `key_up`, `wait`.

        `at`, `to`: pixels. `button`, `count`, `text`, `keys`, `right` and `down` (pixels), `wait` (ms) as the motion
        needs. Raises KeyError, TypeError and ValueError for an invalid deed.
        """
        motion = deed["motion"]
        if motion == "wait":
            return time.sleep(min(float(deed["wait"]), 60_000) / 1000)
        with self._turn:
            if deed.get("at") is not None:
                self._move(deed["at"])
            self._act(motion, deed)
        return None

    def _act(self, motion: str, deed: Mapping[str, Any]) -> None:
        if motion == "click":
            for _ in range(int(deed.get("count", 1))):
                self._click(BUTTONS[deed.get("button", "left")])
        elif motion in ("down", "up"):
            self._screen.button(BUTTONS[deed.get("button", "left")], motion == "down")
        elif motion == "drag":
            self._drag(deed["to"], BUTTONS[deed.get("button", "left")])
        elif motion == "scroll":
            self._turns(int(deed.get("down", 0)), UP, DOWN)
            self._turns(int(deed.get("right", 0)), LEFT, RIGHT)
        elif motion == "type":
            self._type(str(deed["text"]))
        elif motion in ("press", "key_down", "key_up"):
            self._chord(deed["keys"], motion)
        elif motion != "move":
            raise ValueError(f"no motion {motion!r}")

    def _move(self, place: Sequence[int]) -> None:
        x, y = place
        width, height = self.size
        self._screen.move(min(width - 1, max(0, int(x))), min(height - 1, max(0, int(y))))

    def _click(self, number: int) -> None:
        self._screen.button(number, True)
        time.sleep(PAUSE_S)
        self._screen.button(number, False)
        time.sleep(PAUSE_S)

    def _drag(self, to: Sequence[int], number: int) -> None:
        (left, top), (x, y) = self.place(), to
        self._screen.button(number, True)
        for part in range(1, 9):  # applications begin to drag after a few pixels
            time.sleep(PAUSE_S)
            self._move((left + (x - left) * part // 8, top + (y - top) * part // 8))
        time.sleep(PAUSE_S)
        self._screen.button(number, False)

    def _turns(self, pixels: int, back: int, forth: int) -> None:
        notches = min(MOST_NOTCHES, -(-abs(pixels) // NOTCH))
        for _ in range(notches):
            self._click(forth if pixels > 0 else back)

    def _type(self, text: str) -> None:
        for character in text:
            if character in "\n\t":
                self._chord([character], "press")
            else:
                self._screen.write(character)
            time.sleep(PAUSE_S / 4)

    def _chord(self, names: Sequence[str], motion: str) -> None:
        """Press keys in order and release them in reverse. A key that the keyboard lacks is written as a character."""
        if motion == "press" and len(names) == 1 and len(names[0]) == 1 and names[0] not in KEYS:
            return self._screen.write(names[0])
        keys = [keysym_of(name) for name in names]
        if motion != "key_up":
            for key in keys:
                self._screen.key(key, True)
        if motion != "key_down":
            for key in reversed(keys):
                self._screen.key(key, False)
        return None

    def png(self, *, still_ms: float = 0.0) -> bytes:
        """The screen. With `still_ms` it is taken once seven screenshots in a row are equal and, if `alone`, no process
        is busy, or after that time.
        """
        until, alike, works = time.monotonic() + still_ms / 1000, 0, self._alone
        pixels = self._grabbed()
        while (alike < LOOKS - 1 or works) and time.monotonic() < until:
            time.sleep(LOOK_S)
            works = self._alone and restless()
            before, pixels = pixels, self._grabbed()
            alike = alike + 1 if pixels == before else 0
        with self._turn:
            return png_file(pixels, self.size, self._screen.cursor())

    def _grabbed(self) -> bytes:
        with self._turn:
            return self._screen.grab()


def keysym_of(name: str) -> str:
    """The keysym of a key, by the names of DOM events, of pyautogui or of X."""
    if name.lower() in KEYS:
        return KEYS[name.lower()]
    return CHARACTERS.get(name, name) if len(name) == 1 else name


CHARACTERS = {
    "+": "plus",
    "-": "minus",
    "=": "equal",
    ",": "comma",
    ".": "period",
    "/": "slash",
    "\\": "backslash",
    ";": "semicolon",
    "'": "apostrophe",
    "[": "bracketleft",
    "]": "bracketright",
    "`": "grave",
}


def png_file(pixels: bytes, size: tuple[int, int], cursor: tuple[int, int, int, list[int]]) -> bytes:
    """A PNG file (8 bits, RGB) from pixels of four bytes, with the cursor drawn over them."""
    width, height = size
    drawn = bytearray(pixels)
    draw_cursor(drawn, size, cursor)
    colours = bytearray(3 * width * height)
    for channel, source in enumerate((2, 1, 0)):
        colours[channel::3] = drawn[source::4]
    row = 3 * width
    rows = b"".join(b"\0" + colours[line * row : (line + 1) * row] for line in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 3)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_png_chunk, parts))


def _png_chunk(part: tuple[bytes, bytes]) -> bytes:
    kind, data = part
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def draw_cursor(pixels: bytearray, size: tuple[int, int], cursor: tuple[int, int, int, list[int]]) -> None:
    """In place; the colours of a cursor are premultiplied by its alpha."""
    left, top, across, colours = cursor
    width, height = size
    for number, colour in enumerate(colours):
        x, y = left + number % across, top + number // across
        alpha = colour >> 24 & 255
        if alpha and 0 <= x < width and 0 <= y < height:
            at = 4 * (y * width + x)
            for channel in range(3):
                own = colour >> 8 * channel & 255
                pixels[at + channel] = min(255, own + pixels[at + channel] * (255 - alpha) // 255)
