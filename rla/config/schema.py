"""Parameters as data: bounds, the JSON Schema of `params.yaml`, and differences between two sets of parameters.

Bounds are in the metadata of dataclass fields, which `rla.config.load.build` and `params.schema.json` both use. Numbers
that are not finite are refused for every key.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, field, fields, is_dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

MOST_PROCESSES = 4096  # and threads
LONGEST_WAIT = 1e6  # seconds
LARGEST = 2**31 - 1  # whole number: libraries use 32 bits
WORDS = {
    "minimum": "{} or more",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}
KEY = "bounds"  # of the metadata


def ranged(default: Any, **limits: Any) -> Any:
    """A key for numbers within `limits` (`bounds_of`)."""
    return field(default=default, metadata=bounds_of(default, **limits))


def from_zero(default: int) -> Any:
    """A key for whole numbers from 0."""
    return ranged(default, least=0)


def from_one(default: int) -> Any:
    """A key for whole numbers from 1."""
    return ranged(default, least=1)


def fraction(default: float | None) -> Any:
    """A key for numbers in [0, 1]."""
    return ranged(default, least=0.0, most=1.0)


def heat(default: float, *, or_zero: bool = False) -> Any:
    """A key for a sampling temperature. Logits divided by less than 0.01 overflow in fp32."""
    return ranged(default, least=0.01, most=100.0, or_zero=or_zero)


def bounds_of(
    default: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    or_zero: bool = False,
) -> dict[str, Any]:
    """Metadata of a field. `least` and `most` are inclusive, `above` and `below` exclusive bounds. `or_zero`: 0 is also
    allowed. Whole numbers without an upper bound end at LARGEST.
    """
    if isinstance(default, int) and most is None and below is None:
        most = LARGEST
    found = {"minimum": least, "exclusiveMinimum": above, "maximum": most, "exclusiveMaximum": below}
    given = {keyword: value for keyword, value in found.items() if value is not None}
    return {KEY: {"anyOf": [{"const": 0}, given]} if or_zero else given}


def flaw_of(value: Any, metadata: Mapping[str, Any]) -> str | None:
    """The bounds in words if `value` is a number outside of them, else None."""
    if isinstance(value, tuple):
        return next((flaw for one in value if (flaw := flaw_of(one, metadata))), None)
    if isinstance(value, bool) or not isinstance(value, int | float) or KEY not in metadata:
        return None
    zero, given = _parts(metadata)
    inside = (
        given.get("minimum", value) <= value <= given.get("maximum", value)
        and ("exclusiveMinimum" not in given or value > given["exclusiveMinimum"])
        and ("exclusiveMaximum" not in given or value < given["exclusiveMaximum"])
    )
    if inside or (zero and value == 0):
        return None
    if value > (most := given.get("maximum", value)):  # bounds in words do not name LARGEST
        return f"it must be at most {_plain(most)}"
    return f"it must be {bounds_in_words(metadata)}"


def _parts(metadata: Mapping[str, Any]) -> tuple[bool, Mapping[str, float]]:
    """Whether 0 is also allowed, and the bounds."""
    given = metadata[KEY]
    return ("anyOf" in given, given["anyOf"][1] if "anyOf" in given else given)


def bounds_in_words(metadata: Mapping[str, Any]) -> str:
    """`0 or more`, `0, or above 1 and at most 10`. LARGEST is left out."""
    zero, given = _parts(metadata)
    said = {keyword: _plain(value) for keyword, value in given.items() if value != LARGEST}
    texts = [text.format(said[keyword]) for keyword, text in WORDS.items() if keyword in said]
    if {"minimum", "maximum"} <= said.keys():
        texts = [f"from {said['minimum']} to {said['maximum']}"]
    return ("0, or " if zero else "") + " and ".join(texts)


def _plain(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# Metadata of keys and sections that do not affect outputs, and are not part of an origin.
WITHOUT_EFFECT = {"effect": False}


def without_effect(default: Any, **limits: Any) -> Any:
    """A key that may change within a run, such as the address of a server. `limits`: as for `ranged`."""
    return field(default=default, metadata=WITHOUT_EFFECT | (bounds_of(default, **limits) if limits else {}))


def recorded_as(default: Any, name: str) -> Any:
    """A key whose effect on outputs is the property `name` of its section."""
    return field(default=default, metadata={"recorded_as": name})


SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean"}


def _type_schema(hint: Any) -> dict[str, Any]:
    """The schema of a type: scalar, Literal, optional, tuple or nested section."""
    if is_dataclass(hint):
        return section_schema(hint)
    if hint is Any:
        return {}
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        size = {} if args[-1] is Ellipsis else {"minItems": len(args), "maxItems": len(args)}
        return {"type": "array", "items": _type_schema(args[0])} | size
    if origin in (Union, types.UnionType):
        return {"anyOf": [{"type": "null"} if inner is type(None) else _type_schema(inner) for inner in args]}
    return {"type": SCALARS[hint]}


def section_schema(section: Any) -> dict[str, Any]:
    hints = get_type_hints(section)
    properties = {}
    for entry in fields(section):
        schema = _type_schema(hints[entry.name])
        bounds = entry.metadata.get(KEY, {})
        numbers = schema["items"] if schema.get("type") == "array" else schema
        numbers |= {"allOf": [bounds]} if "anyOf" in bounds and "anyOf" in numbers else bounds
        if entry.default is not MISSING:
            default = entry.default
            if is_dataclass(default) and not isinstance(default, type):
                default = asdict(default)
            schema["default"] = list(default) if isinstance(default, tuple) else default
        properties[entry.name] = schema
    summary = (section.__doc__ or "").strip().splitlines()[0]
    return {"type": "object", "description": summary, "additionalProperties": False, "properties": properties}


def params_schema(config: type, own: Mapping[str, type]) -> dict[str, Any]:
    """The document in `schemas/params.schema.json`. `config`: a class of `rla.config.load.config_type`. `own`: the
    dataclasses of environments' parameters by name; those of other environments are an open object.
    """
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "params"} | section_schema(config)
    env = document["properties"]["env"]
    env["properties"]["own"] = {"type": ["object", "null"]}
    env["allOf"] = [
        {
            "if": {"properties": {"name": {"const": name}}, "required": ["name"]},
            "then": {"properties": {"own": {"anyOf": [section_schema(params), {"type": "null"}]}}},
        }
        for name, params in own.items()
    ]
    return document


SHOWN = 5  # parameters in an error
LONGEST_VALUE = 60  # characters of a value


class Absent(Enum):
    """The value of a parameter that only the other side has."""

    ABSENT = "not there"


ABSENT = Absent.ABSENT
Differences = dict[str, tuple[Any, Any]]  # dotted key -> (old value, new value)


def flattened(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value of nested parameters. Lists and empty sections are values."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            found |= flattened(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def parameter_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Differences:
    """The parameters that differ, in the order of `new`, then those that only `old` has."""
    before, now = flattened(old), flattened(new)
    found = {key: (before.get(key, ABSENT), value) for key, value in now.items() if before.get(key, ABSENT) != value}
    return found | {key: (value, ABSENT) for key, value in before.items() if key not in now}


def differences_text(found: Differences, *, shown: int = SHOWN, now: str = "this call has") -> str:
    """The differences as one line. `now`: introduces the new values. Values are JSON, because they may be untrusted."""
    texts = [
        f"{shown_key(key)} {shown_value(old)}, {now} {shown_value(new)}"
        for key, (old, new) in list(found.items())[:shown]
    ]
    return "; ".join(texts) + (f"; and {len(found) - shown} more" if len(found) > shown else "")


def shown_key(key: str) -> str:
    """The key if it is a dotted identifier of usual length, else as `shown_value`."""
    return (
        key if key.replace(".", "").replace("-", "").isidentifier() and len(key) <= LONGEST_VALUE else shown_value(key)
    )


def shown_value(value: Any) -> str:
    """The value as it is if it is an ASCII identifier, else as JSON; long values are cut."""
    if value is ABSENT:
        return str(ABSENT.value)
    plain = isinstance(value, str) and value.isascii() and value.isidentifier()
    text = str(value) if plain else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
