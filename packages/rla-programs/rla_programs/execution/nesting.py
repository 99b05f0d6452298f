"""How deep a JSON value is nested, computed without recursion: untrusted values may be deeper than our stack.

A value that could be parsed at one point of the program may be too deep to be written at another, with more frames on
the stack. So values deeper than `DEEPEST` are refused on input, and later code need not care.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

DEEPEST = 64


def levels(value: Any) -> Iterator[list[Any]]:
    """The value alone, then all values directly inside it, and so on; tuples count as lists."""
    level = [value]
    while level:
        yield level
        level = [one for inner in level for one in _inside(inner)]


def too_deep(value: Any) -> bool:
    """Whether lists and objects are nested deeper than DEEPEST."""
    return next(islice(levels(value), DEEPEST, None), None) is not None


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
