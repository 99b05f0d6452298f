"""The JSON Schema of `params.yaml`, derived from the dataclasses so that it is never written twice."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from rla.config.bounds import KEY
from rla.config.sections import Config

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
        return {"type": "array", "items": type_schema(args[0])}
    if origin in (Union, types.UnionType):
        return {"anyOf": [{"type": "null"} if inner is type(None) else type_schema(inner) for inner in args]}
    return {"type": SCALARS[hint]}


def section_schema(section: Any) -> dict[str, Any]:
    hints = get_type_hints(section)
    properties = {}
    for entry in fields(section):
        schema = type_schema(hints[entry.name])
        bounds = entry.metadata.get(KEY, {})
        schema |= {"allOf": [bounds]} if "anyOf" in bounds and "anyOf" in schema else bounds
        if entry.default is not MISSING:
            default = entry.default
            if is_dataclass(default) and not isinstance(default, type):
                default = asdict(default)
            schema["default"] = list(default) if isinstance(default, tuple) else default
        properties[entry.name] = schema
    summary = (section.__doc__ or "").strip().splitlines()[0]
    return {"type": "object", "description": summary, "additionalProperties": False, "properties": properties}


def params_schema(config: type[Config], own: Mapping[str, type]) -> dict[str, Any]:
    """The whole document, as stored in `schemas/params.schema.json`. `config`: a class of
    `rla.config.backends.config_type`; `own`: the parameters of environments by name, those of any other environment
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
