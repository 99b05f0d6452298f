"""The text that a policy reads of an OpenEnv observation, which is a JSON object in the server's own format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rla.envs.observation import EnvironmentFailure
from rla_bridges.adapters.openenv_client import Json, clean

MOST_COMMANDS = 10_000
ASIDE = ("metadata", "commands", "reward", "done")  # may hold hidden information, or is shown elsewhere


def observation_text(observation: Json, *, field: str, longest: int) -> str:
    """The text of an observation, cut to `longest` characters.

    With `field` set, it is that entry. Otherwise it is the first that applies of: `text`, if that is a string; the only
    non-empty entry, if that is a string; all entries as JSON. It is empty if all entries are. Raises EnvironmentFailure
    if `field` is missing.
    """
    if field and field not in observation:
        raise EnvironmentFailure(f"the observation has no {field!r}, which env.own.text_field names")
    shown = {
        name: value for name, value in observation.items() if name not in ASIDE and value not in (None, "", [], {})
    }
    if field:
        found = observation[field]
    elif isinstance(observation.get("text"), str):
        found = observation["text"]
    else:
        found = next(iter(shown.values()), "") if len(shown) < 2 else shown
    text = clean(found) if isinstance(found, str) else as_json(found if field else shown)
    return text if len(text) <= longest else f"{text[:longest]} [... {len(text) - longest} more characters]"


def as_json(value: Any) -> str:
    """Raises EnvironmentFailure if the value is nested too deeply."""
    try:
        return clean(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        raise EnvironmentFailure("the observation is nested too deeply") from None


def commands_of(observation: Json) -> tuple[str, ...]:
    """The commands that an observation offers: `commands`, if it is a list of strings."""
    found = observation.get("commands")
    if not isinstance(found, list) or not all(isinstance(command, str) for command in found):
        return ()
    if len(found) > MOST_COMMANDS:
        raise EnvironmentFailure(f"{len(found)} commands; at most {MOST_COMMANDS} can be offered")
    return tuple(map(clean, found))


def line_of(description: Any, *, longest: int = 300) -> str:
    """A server's description of itself as one line, or an empty string if it has none."""
    return clean(" ".join(description.split()))[:longest] if isinstance(description, str) else ""


def text_at(value: Any, name: str) -> str:
    """The string under a name of a mapping. Empty if `value` is not a mapping or the entry is not a string."""
    found = value.get(name) if isinstance(value, Mapping) else None
    return clean(found) if isinstance(found, str) else ""
