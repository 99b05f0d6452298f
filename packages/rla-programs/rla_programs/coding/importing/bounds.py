"""JSON texts of untrusted rows: their characters and values are counted before they are parsed.

A text of a megabyte may contain a hundred thousand lists, each of which takes thirty times its two characters in
memory, so a limit on bytes alone does not limit memory.
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
    """The value of a JSON text. Raises `InvalidProblem` if it is too large, ValueError and RecursionError if
    invalid.
    """
    if len(text) > MOST_CHARACTERS:
        raise InvalidProblem(f"a JSON text of more than {MOST_CHARACTERS >> 20} million characters")
    if _marks(text) > values and _marks(STRING.sub("", text)) > values:  # strings contain many commas, too
        raise InvalidProblem(f"a JSON text of more than {values} values")
    return json.loads(text)


def _marks(text: str) -> int:
    """An upper bound on the number of values minus one, whatever its strings contain."""
    return sum(map(text.count, ",[{:"))
