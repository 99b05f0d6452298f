"""Which parameters two calls differ in, and how an error names them: `rollout.rollouts_per_task 8, this call has 4`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

SHOWN = 5  # parameters that an error names
LONGEST = 60  # characters of a value


class Absent(Enum):
    """The value of a parameter that one of the two does not have."""

    ABSENT = "not there"


ABSENT = Absent.ABSENT
Differences = dict[str, tuple[Any, Any]]  # dotted key -> the value of before, and that of now


def flattened(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value, of nested parameters. A list is a value, and so is an empty section."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            found |= flattened(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def parameter_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Differences:
    """The parameters that are not equal, in order of `new`; last those that only `old` has."""
    before, now = flattened(old), flattened(new)
    found = {key: (before.get(key, ABSENT), value) for key, value in now.items() if before.get(key, ABSENT) != value}
    return found | {key: (value, ABSENT) for key, value in before.items() if key not in now}


def differences_text(found: Differences, *, shown: int = SHOWN, now: str = "this call has") -> str:
    """What differs in one line. `now`: what has the second value of each. Values are shown as JSON, because anybody may
    have written the file they are from.
    """
    texts = [
        f"{shown_key(key)} {shown_value(old)}, {now} {shown_value(new)}"
        for key, (old, new) in list(found.items())[:shown]
    ]
    return "; ".join(texts) + (f"; and {len(found) - shown} more" if len(found) > shown else "")


def shown_key(key: str) -> str:
    """A key as it is, unless it holds what no key does."""
    return key if key.replace(".", "").replace("-", "").isidentifier() and len(key) <= LONGEST else shown_value(key)


def shown_value(value: Any) -> str:
    """A plain word as it is, all else as JSON; long ones are cut."""
    if value is ABSENT:
        return str(ABSENT.value)
    plain = isinstance(value, str) and value.isascii() and value.isidentifier()
    text = str(value) if plain else json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
