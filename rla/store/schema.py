"""JSON Schema -> Arrow: the only definition of a shard's columns is `schemas/<kind>.schema.json`.

A package that brings a kind of its own names the `Path` of its schema in its pyproject.toml:

    [project.entry-points."rla.schemas"]
    answers = "answers:SCHEMA"

Supported: string (`format` binary: bytes), integer (`format` int8/int32/int64), number (float32/float64), boolean,
array, object, `null` in a type list, and the checks `enum`, `minimum`, `maximum`, `minLength`. Checks run column-wise
on Arrow arrays, so a row of thousands of tokens costs no Python loop. Rows may lack a column that is marked
`optional`. A part has all columns, so that readers of Parquet may join any parts of a kind.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rla.errors import UserError
from rla.plugins import loaded_path, registered
from rla.store.layout import rerun, resource
from rla.store.rules import broken_rule
from rla.text import whole_texts

GROUP = "rla.schemas"
SCALARS = {"string": pa.string(), "boolean": pa.bool_(), "integer": pa.int32(), "number": pa.float64()}
FORMATS = {
    "int8": pa.int8(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "binary": pa.binary(),
}


@cache
def load_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema document of a shard kind. Raises UserError for one that nothing installed has."""
    path = resource("schemas") / f"{kind}.schema.json"
    if not path.is_file():
        found = registered(GROUP)
        if kind not in found:
            raise UserError(f"{kind}: no installed package has shards of this kind; install the one that made them")
        path = loaded_path(found[kind])
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@cache
def optional_columns(kind: str) -> frozenset[str]:
    """The columns that a row may lack; a part has them all."""
    return frozenset(name for name, node in load_schema(kind)["properties"].items() if node.get("optional"))


@cache
def arrow_schema(kind: str) -> pa.Schema:
    """The Arrow schema derived from it, with the version in the metadata."""
    document = load_schema(kind)
    metadata = {"rla_kind": kind, "rla_schema_version": str(document["version"])}
    return pa.schema(list(_arrow_type(document)), metadata=metadata)


def nullable(node: dict[str, Any]) -> bool:
    return isinstance(node["type"], list) and "null" in node["type"]


def base_type(node: dict[str, Any]) -> str:
    kind = node["type"]
    name: str = next(t for t in kind if t != "null") if isinstance(kind, list) else kind
    return name


def _arrow_type(node: dict[str, Any]) -> pa.DataType:
    """The Arrow type of one schema node."""
    kind = base_type(node)
    if kind == "array":
        return pa.list_(pa.field("item", _arrow_type(node["items"]), nullable=nullable(node["items"])))
    if kind == "object":
        parts = node["properties"].items()
        return pa.struct([pa.field(name, _arrow_type(child), nullable=nullable(child)) for name, child in parts])
    return FORMATS.get(node.get("format", ""), SCALARS[kind])


def to_table(kind: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table of the kind's schema, every value checked. UserError names kind, column and rule.

    Halves of surrogate pairs, which no column of text can hold, are replaced.
    """
    optional = optional_columns(kind)
    required = set(load_schema(kind)["properties"]) - optional
    for row in rows[:1] + rows[-1:]:
        if set(row) - optional != required:
            raise UserError(f"{kind} row: columns {sorted((set(row) - optional) ^ required)} are unknown or missing")
    schema = arrow_schema(kind)
    try:
        try:
            table = pa.Table.from_pylist(rows, schema=schema)
        except UnicodeEncodeError:
            table = pa.Table.from_pylist(whole_texts(rows), schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise UserError(f"{kind} row does not fit {kind}.schema.json: {error}") from None
    _check_table(kind, table)
    return table


def _check_table(kind: str, table: pa.Table) -> None:
    """Check every value of a table that has the kind's columns. UserError names kind, column and rule."""
    properties = load_schema(kind)["properties"]
    for name in table.column_names:
        _check_column(f"{kind}.{name}", properties[name], table.column(name).combine_chunks())


def _check_column(where: str, node: dict[str, Any], array: pa.Array) -> None:
    """Recursively apply nullability and value rules to a column."""
    if array.null_count and not nullable(node):
        raise UserError(f"{where}: null is not allowed")
    kind = base_type(node)
    if kind == "array":
        _check_column(f"{where}[]", node["items"], array.flatten())
    elif kind == "object":
        there = {field.name for field in array.type}  # a reader may ask for some of them
        for name, child in node["properties"].items():
            if name in there:
                _check_column(f"{where}.{name}", child, array.field(name))
    else:
        _check_values(where, node, array)


def _check_values(where: str, node: dict[str, Any], array: pa.Array) -> None:
    values = array.drop_null()
    if not len(values):
        return
    if "enum" in node:
        allowed = pa.array([v for v in node["enum"] if v is not None], type=values.type)
        bad = pc.filter(values, pc.invert(pc.is_in(values, allowed)))
        if len(bad):
            raise UserError(f"{where}: {bad[0].as_py()!r} is not one of {node['enum']}")
    if "minimum" in node and pc.min(values).as_py() < node["minimum"]:
        raise UserError(f"{where}: {pc.min(values).as_py()} is below {node['minimum']}")
    if "maximum" in node and pc.max(values).as_py() > node["maximum"]:
        raise UserError(f"{where}: {pc.max(values).as_py()} is above {node['maximum']}")
    if "minLength" in node and pc.min(pc.utf8_length(values)).as_py() < node["minLength"]:
        raise UserError(f"{where}: text shorter than {node['minLength']}")
    if pa.types.is_floating(values.type) and not pc.all(pc.is_finite(values)).as_py():
        raise UserError(f"{where}: not a finite number")


REWARDS = frozenset({"policy_rewards", "rm_rewards"})  # training compares them with their tokens, and names both


def check_rows(path: Path, kind: str, table: pa.Table) -> None:
    """UserError, which names the part, for a value that its schema does not allow and for a row that breaks a rule.

    The table may have some of the kind's columns alone, and some of their nested ones.
    """
    if kind in REWARDS:
        return
    try:
        _check_table(kind, table)
    except UserError as error:
        raise UserError(f"{path}: {error}; {rerun(path)}") from None
    if found := broken_rule(kind, table):
        raise UserError(f"{path}: {found}; {rerun(path)}")


def check_columns(path: Path, kind: str, found: pa.Schema) -> None:
    """UserError unless a part has the columns of its kind, each with its type."""
    expected = arrow_schema(kind)
    odd = sorted(set(found.names) ^ set(expected.names))
    if odd or len(found.names) != len(set(found.names)):
        names = ", ".join(odd) or "there twice"
        raise UserError(
            f"{path}: no part of a {kind} shard, columns unknown, missing or doubled: {names}; {rerun(path)}"
        )
    for field in found:
        wanted = expected.field(field.name).type
        if not field.type.equals(wanted):
            raise UserError(f"{path}: its column {field.name} is {field.type}, not {wanted}; {rerun(path)}")
