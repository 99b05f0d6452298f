"""Bounds of parameters, in the metadata of their fields, and the JSON Schema of `params.yaml` made from them.

`rla.config.load.build` refuses values outside the bounds, and `params.schema.json` says the same, because both read the
metadata. Numbers that are not finite are refused for every key.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, field, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

MOST_PROCESSES = 4096  # and threads
LONGEST_WAIT = 1e6  # seconds
LARGEST = 2**31 - 1  # of whole numbers: libraries below count with 32 bits
WORDS = {
    "minimum": "{} or more",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}
KEY = "bounds"  # of the metadata


def ranged(default: Any, **limits: Any) -> Any:
    """A key that takes the numbers within `limits` (`bounds_of`)."""
    return field(default=default, metadata=bounds_of(default, **limits))


def from_zero(default: int) -> Any:
    """A key that takes whole numbers, 0 among them."""
    return ranged(default, least=0)


def from_one(default: int) -> Any:
    """A key that takes whole numbers above 0."""
    return ranged(default, least=1)


def fraction(default: float | None) -> Any:
    """A key that takes numbers in [0, 1]."""
    return ranged(default, least=0.0, most=1.0)


def heat(default: float, *, or_zero: bool = False) -> Any:
    """A temperature of sampling. Logits divided by less than 0.01 overflow in fp32."""
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
    """Metadata of a field. `least` and `most` are possible themselves, `above` and `below` are not.

    `or_zero`: 0 is possible, too. Whole numbers without an upper bound end at LARGEST.
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
    zero, given = parts_of_bounds(metadata)
    inside = (
        given.get("minimum", value) <= value <= given.get("maximum", value)
        and ("exclusiveMinimum" not in given or value > given["exclusiveMinimum"])
        and ("exclusiveMaximum" not in given or value < given["exclusiveMaximum"])
    )
    if inside or (zero and value == 0):
        return None
    if value > (most := given.get("maximum", value)):  # bounds in words do not name LARGEST
        return f"it must be at most {shown(most)}"
    return f"it must be {bounds_in_words(metadata)}"


def parts_of_bounds(metadata: Mapping[str, Any]) -> tuple[bool, Mapping[str, float]]:
    """Whether 0 is possible in addition to the bounds, and the bounds."""
    given = metadata[KEY]
    return ("anyOf" in given, given["anyOf"][1] if "anyOf" in given else given)


def bounds_in_words(metadata: Mapping[str, Any]) -> str:
    """`0 or more`, `0, or above 1 and at most 10`; the end of all whole numbers is left out."""
    zero, given = parts_of_bounds(metadata)
    said = {keyword: shown(value) for keyword, value in given.items() if value != LARGEST}
    texts = [text.format(said[keyword]) for keyword, text in WORDS.items() if keyword in said]
    if {"minimum", "maximum"} <= said.keys():
        texts = [f"from {said['minimum']} to {said['maximum']}"]
    return ("0, or " if zero else "") + " and ".join(texts)


def shown(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# Metadata of keys and sections on which no output depends: no origin is digested from them.
WITHOUT_EFFECT = {"effect": False}


def without_effect(default: Any, **limits: Any) -> Any:
    """A key that may change within a run, such as the address of a server. `limits`: bounds of a number, as for
    `ranged`.
    """
    return field(default=default, metadata=WITHOUT_EFFECT | (bounds_of(default, **limits) if limits else {}))


def recorded_as(default: Any, name: str) -> Any:
    """A key whose effect on outputs is the property `name` of its section."""
    return field(default=default, metadata={"recorded_as": name})


SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean"}


def type_schema(hint: Any) -> dict[str, Any]:
    """The schema of one annotation: scalar, Literal, optional, tuple[X, ...] or a nested section."""
    if is_dataclass(hint):
        return section_schema(hint)
    if hint is Any:
        return {}
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        size = {} if args[-1] is Ellipsis else {"minItems": len(args), "maxItems": len(args)}
        return {"type": "array", "items": type_schema(args[0])} | size
    if origin in (Union, types.UnionType):
        return {"anyOf": [{"type": "null"} if inner is type(None) else type_schema(inner) for inner in args]}
    return {"type": SCALARS[hint]}


def section_schema(section: Any) -> dict[str, Any]:
    hints = get_type_hints(section)
    properties = {}
    for entry in fields(section):
        schema = type_schema(hints[entry.name])
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
    """The whole document, as stored in `schemas/params.schema.json`. `config`: a class of
    `rla.config.load.config_type`; `own`: the parameters of environments by name; for other environments they
    are an open object.
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
