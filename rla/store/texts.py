"""Texts: for people, and such that every file, tokenizer and column can hold them.

JSON can write halves of surrogate pairs, and no UTF-8 file, tokenizer or Parquet column can hold one.
"""

from __future__ import annotations

import re
from typing import Any

HALF = re.compile("[\ud800-\udfff]")


def whole_text(text: str) -> str:
    """The text with each half of a surrogate pair replaced by U+FFFD; two halves that belong together are joined."""
    if HALF.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_texts(value: Any) -> Any:
    """Nested lists, tuples and dictionaries in which all texts, keys included, are `whole_text`."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, dict):
        return {whole_texts(key): whole_texts(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(whole_texts, value))
    return value


def readable_bytes(count: float) -> str:
    """`107 GB`: three digits, decimal units as disks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.0f} TB" if count >= 99.5 else f"{count:.3g} TB"


def counted(number: int, noun: str) -> str:
    """`1 log`, `2 logs`: for nouns whose plural takes an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """8 s, 2 min 5 s, 1 h 3 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
