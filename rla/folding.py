"""Texts as they look: NFKC, case folding, and no characters that cannot be seen; and texts made fit to be shown.

A tag in full-width letters, or with a soft hyphen in it, reads like the tag itself to a model, and to some tokenizers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

CONTROL = re.compile(
    r"<[|\uff5c]|</?(?:s|think)>|<(?:bos|eos|pad)>|<(?:start|end)_of_turn>|<</?SYS>>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]",
    re.IGNORECASE,
)
# Joiners, variation selectors and fillers, which no category tells from what can be seen.
INVISIBLE = frozenset("\u034f\u115f\u1160\u3164\uffa0\u180b\u180c\u180d\u180f") | set(map(chr, range(0xFE00, 0xFE10)))


@lru_cache(maxsize=4096)
def _folded(sign: str) -> str:
    if sign in INVISIBLE or unicodedata.category(sign) == "Cf":
        return ""
    return unicodedata.normalize("NFKC", sign).casefold()


def folded(text: str) -> str:
    """`text` to compare with others, character by character."""
    return text.lower() if text.isascii() else "".join(map(_folded, text))


def broken(text: str, pattern: re.Pattern[str], mark: Callable[[re.Match[str]], str] = lambda found: " ") -> str:
    """`text` with a mark behind everything that `pattern` finds in the folded text."""
    found = list(pattern.finditer(folded(text)))
    if not found:
        return text
    ends = [place for place, sign in enumerate(text, 1) for _ in _folded(sign)]  # of each folded character
    pieces, start = list[str](), 0
    for one in found:
        end = ends[one.end() - 1] if one.end() else 0
        pieces += [text[start:end], mark(one)]
        start = end
    return "".join([*pieces, text[start:]])


def printable(text: str) -> str:
    """`text` with a space for every control character but the newline (Unicode category C: escape sequences, invisible
    marks, marks that turn the direction of writing, halves of surrogate pairs).
    """
    return "".join(" " if unicodedata.category(sign)[0] == "C" and sign != "\n" else sign for sign in text)


def one_line(text: str, limit: int) -> str:
    """`text` without control characters and line ends, cut to `limit` characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else f"{line[: limit - 3].rstrip()}..."


def neutral(text: str) -> str:
    """`text` with the control strings of common chat templates broken; only a server knows which of them it acts on."""
    return CONTROL.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
