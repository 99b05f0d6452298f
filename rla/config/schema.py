"""Parameters as data: bounds, the JSON Schema of `params.yaml`, and differences between two sets of parameters.

The JSON Schema of a dataclass (`section_schema`) is made of its type hints and of the bounds in the metadata of its
fields. `rla.config.load.build` validates by it, editors read it, and the page of parameters shows it.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, field, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

MOST_PROCESSES = 4096  # and threads
LONGEST_WAIT = 1e6  # seconds
LARGEST = 2**31 - 1  # whole number: libraries use 32 bits
KEY = "bounds"  # of the metadata
# Metadata of keys and sections that do not affect outputs, and are not part of an origin.
WITHOUT_EFFECT = {"effect": False}


def ranged(
    default: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    or_zero: bool = False,
    **metadata: Any,
) -> Any:
    """A key for numbers. `least` and `most` are inclusive, `above` and `below` exclusive bounds. `or_zero`: 0 is also
    allowed. Whole numbers without an upper bound end at LARGEST.
    """
    if isinstance(default, int) and most is None and below is None:
        most = LARGEST
    found = {"minimum": least, "exclusiveMinimum": above, "maximum": most, "exclusiveMaximum": below}
    given: dict[str, Any] = {keyword: value for keyword, value in found.items() if value is not None}
    bounds = {"anyOf": [{"const": 0}, given]} if or_zero else given
    return field(default=default, metadata=metadata | ({KEY: bounds} if bounds else {}))


def from_zero(default: int) -> Any:
    return ranged(default, least=0)


def from_one(default: int) -> Any:
    return ranged(default, least=1)


def fraction(default: float | None) -> Any:
    """A key for numbers in [0, 1]."""
    return ranged(default, least=0.0, most=1.0)


def heat(default: float, *, or_zero: bool = False) -> Any:
    """A key for a sampling temperature. Logits divided by less than 0.01 overflow in fp32."""
    return ranged(default, least=0.01, most=100.0, or_zero=or_zero)


def without_effect(default: Any, **limits: Any) -> Any:
    """A key that may change within a run, such as the address of a server. `limits`: as for `ranged`."""
    return ranged(default, **limits, **WITHOUT_EFFECT) if limits else field(default=default, metadata=WITHOUT_EFFECT)


def recorded_as(default: Any, name: str) -> Any:
    """A key whose effect on outputs is the property `name` of its section."""
    return field(default=default, metadata={"recorded_as": name})


def constant(value: Any) -> Any:
    """A field that is a key of the base class, and always `value` in this one."""
    return field(default=value, init=False)


TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", types.NoneType: "null"}
WORDS = {
    "minimum": "{} or more",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}


def bounds_in_words(node: Mapping[str, Any]) -> str:
    """`0 or more`, `0, or above 1 and at most 10`; empty if the schema of a key bounds nothing. LARGEST is left out."""
    parts = node.get("anyOf", ())
    zero = bool(parts) and parts[0] == {"const": 0}
    bounds = parts[1] if zero else node
    given = {keyword: bounds[keyword] for keyword in WORDS if bounds.get(keyword, LARGEST) != LARGEST}
    said = {keyword: str(value) if isinstance(value, int) else f"{value:g}" for keyword, value in given.items()}
    texts = [text.format(said[keyword]) for keyword, text in WORDS.items() if keyword in said]
    if {"minimum", "maximum"} <= said.keys():
        texts = [f"from {said['minimum']} to {said['maximum']}"]
    return ("0, or " if zero else "") + " and ".join(texts)


def _type_schema(hint: Any) -> dict[str, Any]:
    """The schema of a type: scalar, Literal, optional, tuple or nested section. Raises KeyError for another type."""
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
        parts = [_type_schema(inner) for inner in args]
        plain = all(part.keys() == {"type"} for part in parts)
        return {"type": [part["type"] for part in parts]} if plain else {"anyOf": parts}
    return {"type": TYPES[hint]}


def section_schema(section: Any) -> dict[str, Any]:
    hints = get_type_hints(section)
    properties = {}
    for entry in fields(section):
        if not entry.init:
            continue
        schema = _type_schema(hints[entry.name])
        target = schema["items"] if schema.get("type") == "array" else schema
        target |= entry.metadata.get(KEY, {})
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


ABSENT: Any = object()  # the value of a parameter that only the other side has
Differences = dict[str, tuple[Any, Any]]  # dotted key -> (old value, new value)


def flattened(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value of nested parameters. Lists and empty sections are values."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        nested = isinstance(value, Mapping) and value
        found |= flattened(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return found


def parameter_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Differences:
    """The parameters that differ, in the order of `new`, then those that only `old` has."""
    before, now = flattened(old), flattened(new)
    pairs = {key: (before.get(key, ABSENT), now.get(key, ABSENT)) for key in [*now, *before]}
    return {key: (was, value) for key, (was, value) in pairs.items() if was != value}


def differences_text(found: Differences, *, now: str = "this call has") -> str:
    """The differences as one line. `now`: introduces the new values. Values are JSON, because they may be untrusted."""
    texts = [
        f"{shown_key(key)} {shown_value(old)}, {now} {shown_value(new)}"
        for key, (old, new) in list(found.items())[:SHOWN]
    ]
    return "; ".join(texts) + (f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else "")


def shown_key(key: str) -> str:
    """The key if it is a dotted identifier of usual length, else as `shown_value`."""
    plain = key.replace(".", "").replace("-", "").isidentifier() and len(key) <= LONGEST_VALUE
    return key if plain else shown_value(key)


def shown_value(value: Any) -> str:
    """The value as it is if it is an ASCII identifier, else as JSON; long values are cut."""
    if value is ABSENT:
        return "not there"
    plain = isinstance(value, str) and value.isascii() and value.isidentifier()
    text = str(value) if plain else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
