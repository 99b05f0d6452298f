"""The few calls of Xlib, XTEST and XFIXES that a screen needs, through ctypes: pictures, the cursor, mouse and
keyboard.

A connection may be used by one thread at a time.
"""

from __future__ import annotations

import ctypes
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_short, c_uint, c_ulong, c_ushort, c_void_p

Z_PIXMAP, ALL_PLANES = 2, c_ulong(-1).value
SHIFT = "Shift_L"
CURRENT_GROUP = 0
SPARE = 8  # unused keys that characters may borrow
LEARNT_S = 0.15


class XPicture(ctypes.Structure):
    """XImage, up to the last field that is read."""

    _fields_ = [
        ("width", c_int),
        ("height", c_int),
        ("xoffset", c_int),
        ("format", c_int),
        ("data", c_void_p),
        ("byte_order", c_int),
        ("bitmap_unit", c_int),
        ("bitmap_bit_order", c_int),
        ("bitmap_pad", c_int),
        ("depth", c_int),
        ("bytes_per_line", c_int),
        ("bits_per_pixel", c_int),
    ]


class Cursor(ctypes.Structure):
    """XFixesCursorImage: `pixels` are ARGB, one per long, with colours premultiplied by alpha."""

    _fields_ = [
        ("x", c_short),
        ("y", c_short),
        ("width", c_ushort),
        ("height", c_ushort),
        ("xhot", c_ushort),
        ("yhot", c_ushort),
        ("cursor_serial", c_ulong),
        ("pixels", POINTER(c_ulong)),
    ]


class Libraries:
    """libX11, libXtst and libXfixes with the signatures of the functions used. Raises OSError if one is missing."""

    def __init__(self) -> None:
        self.x11 = ctypes.CDLL("libX11.so.6")
        self.test = ctypes.CDLL("libXtst.so.6")
        self.fixes = ctypes.CDLL("libXfixes.so.3")
        x11, pointer = self.x11, c_void_p
        for name, result, arguments in (
            ("XOpenDisplay", pointer, [c_char_p]),
            ("XDefaultRootWindow", c_ulong, [pointer]),
            ("XDisplayWidth", c_int, [pointer, c_int]),
            ("XDisplayHeight", c_int, [pointer, c_int]),
            ("XGetImage", POINTER(XPicture), [pointer, c_ulong, c_int, c_int, c_uint, c_uint, c_ulong, c_int]),
            ("XDestroyImage", c_int, [POINTER(XPicture)]),
            ("XFree", c_int, [pointer]),
            ("XSync", c_int, [pointer, c_int]),
            ("XStringToKeysym", c_ulong, [c_char_p]),
            ("XKeysymToKeycode", ctypes.c_ubyte, [pointer, c_ulong]),
            ("XkbKeycodeToKeysym", c_ulong, [pointer, ctypes.c_ubyte, c_int, c_int]),
            ("XDisplayKeycodes", c_int, [pointer, POINTER(c_int), POINTER(c_int)]),
            ("XChangeKeyboardMapping", c_int, [pointer, c_int, c_int, POINTER(c_ulong), c_int]),
            (
                "XQueryPointer",
                c_int,
                [pointer, c_ulong, *[POINTER(c_ulong)] * 2, *[POINTER(c_int)] * 4, POINTER(c_uint)],
            ),
        ):
            function = getattr(x11, name)
            function.restype, function.argtypes = result, arguments
        self.test.XTestFakeMotionEvent.argtypes = [pointer, c_int, c_int, c_int, c_ulong]
        self.test.XTestFakeButtonEvent.argtypes = [pointer, c_uint, c_int, c_ulong]
        self.test.XTestFakeKeyEvent.argtypes = [pointer, c_uint, c_int, c_ulong]
        self.fixes.XFixesGetCursorImage.restype = POINTER(Cursor)
        self.fixes.XFixesGetCursorImage.argtypes = [pointer]


class Screen:
    """A connection to the display. Raises OSError if there is none."""

    def __init__(self, name: str) -> None:
        self._lib = Libraries()
        self._display = self._lib.x11.XOpenDisplay(name.encode())
        if not self._display:
            raise OSError(f"no display {name}")
        x11 = self._lib.x11
        self._root = x11.XDefaultRootWindow(self._display)
        self.width, self.height = x11.XDisplayWidth(self._display, 0), x11.XDisplayHeight(self._display, 0)
        first, last = c_int(), c_int()
        x11.XDisplayKeycodes(self._display, byref(first), byref(last))
        codes = range(last.value, first.value, -1)
        self._spare = [code for code in codes if not self._keysym(code, 0)][:SPARE] or [last.value]
        self._lent: dict[int, int] = {}  # keysym: spare key, the oldest first

    def grab(self) -> bytes:
        """The pixels, four bytes each (blue, green, red, unused), row by row."""
        x11 = self._lib.x11
        image = x11.XGetImage(self._display, self._root, 0, 0, self.width, self.height, ALL_PLANES, Z_PIXMAP)
        if not image:
            raise OSError("the display gives no picture")
        found = image.contents
        if found.bits_per_pixel != 32 or found.bytes_per_line != 4 * self.width:
            raise OSError("the display has another depth than 24 bits")
        data = ctypes.string_at(found.data, found.bytes_per_line * found.height)
        x11.XDestroyImage(image)
        return data

    def cursor(self) -> tuple[int, int, int, list[int]]:
        """The top left corner of the cursor's picture, its width, and its pixels (ARGB); width 0 without a cursor."""
        image = self._lib.fixes.XFixesGetCursorImage(self._display)
        if not image:
            return 0, 0, 0, []
        found = image.contents
        pixels = found.pixels[: found.width * found.height]
        place = (found.x - found.xhot, found.y - found.yhot, found.width)
        self._lib.x11.XFree(image)
        return *place, pixels

    def pointer(self) -> tuple[int, int]:
        windows, places, mask = [c_ulong(), c_ulong()], [c_int() for _ in range(4)], c_uint()
        given = [byref(each) for each in (*windows, *places, mask)]
        self._lib.x11.XQueryPointer(self._display, self._root, *given)
        return places[0].value, places[1].value

    def move(self, x: int, y: int) -> None:
        self._lib.test.XTestFakeMotionEvent(self._display, -1, x, y, 0)
        self._sync()

    def button(self, number: int, down: bool) -> None:
        """1: left, 2: middle, 3: right, 4 and 5: the wheel up and down, 6 and 7: left and right."""
        self._lib.test.XTestFakeButtonEvent(self._display, number, int(down), 0)
        self._sync()

    def key(self, name: str, down: bool) -> None:
        """Press or release a key by the name of its keysym. Raises KeyError for a name that X does not know."""
        keysym = self._lib.x11.XStringToKeysym(name.encode())
        code = self._lib.x11.XKeysymToKeycode(self._display, keysym) if keysym else 0
        if not code:
            raise KeyError(name)
        self._press(code, down)

    def write(self, character: str) -> None:
        """Type a character, with shift if needed, or on a spare key if the keyboard has no key for it."""
        keysym = ord(character) if ord(character) < 0x100 else 0x01000000 + ord(character)
        code = self._lib.x11.XKeysymToKeycode(self._display, keysym)
        level = next((level for level in (0, 1) if code and self._keysym(code, level) == keysym), None)
        if level is None:
            code, level = self._borrowed(keysym), 0
        if level:
            self.key(SHIFT, True)
        self._press(code, True)
        self._press(code, False)
        if level:
            self.key(SHIFT, False)

    def _borrowed(self, keysym: int) -> int:
        """A spare key for a character that the keyboard lacks. Applications learn of the change a little later."""
        if keysym not in self._lent:
            free = [code for code in self._spare if code not in self._lent.values()]
            code = free[0] if free else self._lent.pop(next(iter(self._lent)))
            self._lib.x11.XChangeKeyboardMapping(self._display, code, 2, (c_ulong * 2)(keysym, keysym), 1)
            self._sync()
            time.sleep(LEARNT_S)
            self._lent[keysym] = code
        return self._lent[keysym]

    def _press(self, code: int, down: bool) -> None:
        self._lib.test.XTestFakeKeyEvent(self._display, code, int(down), 0)
        self._sync()

    def _keysym(self, code: int, level: int) -> int:
        return int(self._lib.x11.XkbKeycodeToKeysym(self._display, code, CURRENT_GROUP, level))

    def _sync(self) -> None:
        self._lib.x11.XSync(self._display, 0)
