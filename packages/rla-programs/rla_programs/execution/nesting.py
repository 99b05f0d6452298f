"""How deep a JSON value is nested, without recursion: what others wrote may be deeper than our stack.

A value that could be read at one place of the program may be too deep to be written at another, where the stack stands
higher. So values deeper than `DEEPEST` are refused where they come in, and nobody has to think of the stack later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

DEEPEST = 64


def levels(value: Any) -> Iterator[list[Any]]:
    """The value alone, then all values that stand directly in it, and so on; tuples count as lists."""
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
