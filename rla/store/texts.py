"""Halves of surrogate pairs: JSON can write them, and no UTF-8 file, tokenizer or Parquet column can hold them."""

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
