"""JSON as models write it: raw line breaks in strings, and single backslashes that begin no escape (`"\\d+"`)."""

from __future__ import annotations

import json
import re
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
DECODER = json.JSONDecoder(strict=False)


def lenient_decode(text: str, start: int = 0) -> tuple[Any, int]:
    """The value that begins at `start`, and the position after it. Raises ValueError (JSONDecodeError, except for
    integers of thousands of digits) and RecursionError.
    """
    try:
        return DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        if "escape" not in error.msg:
            raise
    value, end = LENIENT.raw_decode(text, start)
    return value, int(end)


def lenient_loads(text: str) -> Any:
    """The value of a text, without surrounding white space. Raises as `lenient_decode` does."""
    stripped = text.strip()
    value, end = lenient_decode(stripped)
    if end < len(stripped):
        raise json.JSONDecodeError("Extra data", stripped, end)
    return value


def _string(text: str, start: int, strict: bool = False) -> tuple[str, int]:
    """A string from behind its opening quote, in which backslashes that escape nothing are doubled."""
    found = STRING.match(text, start)
    if found is None:
        raise json.JSONDecodeError("Unterminated string starting at", text, start - 1)
    mended = ESCAPE.sub(lambda one: one[0] if one[1] else "\\\\", found[0][:-1])
    return json.loads(f'"{mended}"', strict=False), found.end()


LENIENT: Any = json.JSONDecoder(strict=False)
LENIENT.parse_string = _string
LENIENT.scan_once = py_make_scanner(LENIENT)
