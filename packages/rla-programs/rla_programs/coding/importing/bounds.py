"""JSON texts of untrusted rows: their characters and values are counted before anything is made of them.

A text of a megabyte may be a hundred thousand lists, each of which takes thirty times the two characters that it is
written with, so a bound on bytes alone bounds no memory.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rla_programs.coding.data.problems import InvalidProblem

MOST_CHARACTERS = 256 << 20
MOST_VALUES = 2_000_000
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def bounded_json(text: str, *, values: int = MOST_VALUES) -> Any:
    """The value of JSON text. Raises `InvalidProblem` where it holds too much, `ValueError` and RecursionError where
    it cannot be read.
    """
    if len(text) > MOST_CHARACTERS:
        raise InvalidProblem(f"a JSON text of more than {MOST_CHARACTERS >> 20} million characters")
    if _marks(text) > values and _marks(STRING.sub("", text)) > values:  # strings are full of commas, too
        raise InvalidProblem(f"a JSON text of more than {values} values")
    return json.loads(text)


def _marks(text: str) -> int:
    """At least as many as there are values in it but one, whatever stands in its strings."""
    return sum(map(text.count, ",[{:"))
