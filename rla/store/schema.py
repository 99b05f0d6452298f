"""JSON Schema -> Arrow: the only definition of a shard's columns is `schemas/<kind>.schema.json`.

A package that brings a kind of its own names the `Path` of its schema in the entry-point group `rla.schemas`.

Supported: string (`format` binary: bytes), integer (`format` int8/int32/int64), number (float32/float64), boolean,
array, object, `null` in a type list, and the checks `enum`, `minimum`, `maximum`, `minLength`. Checks run column-wise
on Arrow arrays, so a row of thousands of tokens costs no Python loop. Rows may lack a column that is marked
`optional`. A part has all columns, so that readers of Parquet may join any parts of a kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rla.errors import UserError
from rla.plugins import loaded_path, registered
from rla.store.layout import rerun, resource
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
    elif len(values := array.drop_null()):
        _check_values(where, node, values)


def _check_values(where: str, node: dict[str, Any], values: pa.Array) -> None:
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
    rules = {"trajectories": _trajectory_rules, "scores": _score_rules}
    for rows, rule in rules[kind](table) if kind in rules else ():
        if len(rows):
            raise UserError(f"{path}: row {rows[0]} of these: {rule}; {rerun(path)}")


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


# Rules between columns that no schema can state, such as spans of steps that lie within their segment. They are
# computed without polars, whose threads would keep the reader of a shard from forking.

_Ints = npt.NDArray[np.int64]
_Broken = tuple[_Ints, str]  # the rows that break a rule, and the rule


def _trajectory_rules(table: pa.Table) -> Iterator[_Broken]:
    steps, segments = _Nested.of(table, "steps"), _Nested.of(table, "segments")
    if segments is not None and segments.has("token_ids", "sampled", "logprobs", "allowed"):
        tokens, allowed = segments.lengths("token_ids"), segments.lengths("allowed")
        same = (tokens == segments.lengths("logprobs")) & (tokens == segments.lengths("sampled"))
        yield segments.rows[~same], "token columns of a segment have different lengths"
        lacking = allowed != segments.sums("sampled")
        yield segments.rows[lacking], "a segment lacks the allowed ids of a sampled token"
    if steps is not None and segments is not None and steps.has("segment", "start", "end"):
        own, start, end = (steps.values(name) for name in ("segment", "start", "end"))
        has_tokens = segments.counts[steps.rows] > 0  # scripted episodes have no tokens
        yield steps.rows[has_tokens & (own >= segments.counts[steps.rows])], "a step names a segment that is not there"
        if segments.has("token_ids"):
            length = np.zeros(len(own), dtype=np.int64)
            place = (segments.starts[steps.rows] + own)[has_tokens]
            length[has_tokens] = segments.lengths("token_ids")[place]
            yield steps.rows[(start > end) | (end > length)], "the span of a step is not within its segment"
    places, spans = _Nested.of(table, "places"), _Nested.of(table, "image_spans")
    if steps is not None and places is not None:
        yield np.flatnonzero(places.given & (places.counts != steps.counts)), "places are not as many as steps"
    if spans is not None and segments is not None and segments.has("token_ids"):
        own = spans.values("segment")
        yield spans.rows[own >= segments.counts[spans.rows]], "a picture stands in a segment that is not there"
        length = segments.lengths("token_ids")[segments.starts[spans.rows] + own]
        yield spans.rows[spans.span_ends() > length], "a picture stands behind the end of its segment"


def _score_rules(table: pa.Table) -> Iterator[_Broken]:
    votes = _Nested.of(table, "judgements")
    if votes is not None and votes.has("token_ids", "logprobs", "allowed"):
        tokens = votes.lengths("token_ids")
        same = (tokens == votes.lengths("logprobs")) & (tokens == votes.lengths("allowed"))
        yield votes.rows[~same], "token columns of a judgement have different lengths"
    spans = _Nested.of(table, "image_spans")
    if spans is not None and "prompt_ids" in table.column_names:
        length = _lengths(table.column("prompt_ids").combine_chunks())[spans.rows]
        yield spans.rows[spans.span_ends() > length], "a picture stands behind the end of the prompt"


class _Nested:
    """A column of lists, its items side by side: `rows` has the row of each, `starts` and `counts` those of each row.

    `given`: of each row whether it has a list at all.
    """

    def __init__(self, column: pa.ListArray) -> None:
        self.given = column.is_valid().to_numpy(zero_copy_only=False)
        self.counts = _lengths(column)
        self.starts = np.cumsum(self.counts) - self.counts
        self.rows = np.repeat(np.arange(len(column)), self.counts)
        self._items = column.flatten()

    @classmethod
    def of(cls, table: pa.Table, name: str) -> _Nested | None:
        return cls(table.column(name).combine_chunks()) if name in table.column_names else None

    def has(self, *names: str) -> bool:
        """Whether the items are objects with these columns."""
        kind = self._items.type
        return pa.types.is_struct(kind) and {field.name for field in kind} >= set(names)

    def values(self, name: str) -> _Ints:
        return cast("_Ints", self._items.field(name).to_numpy(zero_copy_only=False))

    def lengths(self, name: str) -> _Ints:
        return _lengths(self._items.field(name))

    def span_ends(self) -> _Ints:
        return self.values("start").astype(np.int64) + self.values("length")

    def sums(self, name: str) -> _Ints:
        """How many items of each inner list of truths are true."""
        inner = self._items.field(name)
        total = np.concatenate([[0], np.cumsum(inner.flatten().to_numpy(zero_copy_only=False), dtype=np.int64)])
        ends = np.cumsum(_lengths(inner))
        return cast("_Ints", total[ends] - total[ends - _lengths(inner)])


def _lengths(lists: pa.ListArray) -> _Ints:
    """Of each list; 0 for one that is null."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return cast("_Ints", lengths.astype(np.int64))
