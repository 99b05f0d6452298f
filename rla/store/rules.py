"""Rules between columns of a shard that no schema can state, such as spans of steps that lie within their segment."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa

_Broken = tuple[pl.DataFrame, str]  # the items that break a rule, with their `row`, and the rule


def broken_rule(kind: str, table: pa.Table) -> str:
    """The first rule that a row of trajectories or scores breaks, and the row; empty if they keep all."""
    rows = pl.DataFrame(pl.from_arrow(table))
    for broken, rule in _trajectory_rules(rows) if kind == "trajectories" else _score_rules(rows):
        if len(broken):
            return f"row {broken['row'][0]} of these: {rule}"
    return ""


def _trajectory_rules(rows: pl.DataFrame) -> Iterator[_Broken]:
    if _has(rows, "steps") and "places" in rows.columns:
        odd = pl.col("places").list.len() != pl.col("steps").list.len()  # null without places
        yield rows.select(row=pl.int_range(pl.len()), odd=odd).filter("odd"), "places are not as many as steps"
    if not _has(rows, "segments", "token_ids"):
        return
    if _has(rows, "segments", "sampled", "logprobs", "allowed"):
        segments = _items(
            rows,
            "segments",
            token_ids=_length("token_ids"),
            logprobs=_length("logprobs"),
            sampled=_length("sampled"),
            drawn=_field("sampled").list.sum(),
            allowed=_length("allowed"),
        )
        unlike = (pl.col("token_ids") != pl.col("logprobs")) | (pl.col("token_ids") != pl.col("sampled"))
        yield segments.filter(unlike), "token columns of a segment have different lengths"
        yield (
            segments.filter(pl.col("allowed") != pl.col("drawn")),
            "a segment lacks the allowed ids of a sampled token",
        )
    lengths = pl.col("lengths")  # of the segments of the row
    length = lengths.list.get(pl.col("segment"), null_on_oob=True).fill_null(0)
    absent = pl.col("segment") >= lengths.list.len()
    of_row = pl.col("segments").list.eval(_length("token_ids"))
    if _has(rows, "steps", "segment", "start", "end"):
        steps = _items(rows, "steps", of_row, segment=_field("segment"), start=_field("start"), end=_field("end"))
        scripted = lengths.list.len() == 0  # an episode without tokens
        yield steps.filter(absent & ~scripted), "a step names a segment that is not there"
        outside = (pl.col("start") > pl.col("end")) | (pl.col("end") > length)
        yield steps.filter(outside), "the span of a step is not within its segment"
    if _has(rows, "image_spans", "segment", "start", "length"):
        spans = _items(rows, "image_spans", of_row, segment=_field("segment"), end=_end_of_span())
        yield spans.filter(absent), "a picture stands in a segment that is not there"
        yield spans.filter(pl.col("end") > length), "a picture stands behind the end of its segment"


def _score_rules(rows: pl.DataFrame) -> Iterator[_Broken]:
    if _has(rows, "judgements", "token_ids", "logprobs", "allowed"):
        names = ("token_ids", "logprobs", "allowed")
        votes = _items(rows, "judgements", **{name: _length(name) for name in names})
        unlike = (pl.col("token_ids") != pl.col("logprobs")) | (pl.col("token_ids") != pl.col("allowed"))
        yield votes.filter(unlike), "token columns of a judgement have different lengths"
    if _has(rows, "image_spans", "start", "length") and "prompt_ids" in rows.columns:
        spans = _items(rows, "image_spans", pl.col("prompt_ids").list.len(), end=_end_of_span())
        yield spans.filter(pl.col("end") > pl.col("lengths")), "a picture stands behind the end of the prompt"


def _has(rows: pl.DataFrame, column: str, *fields: str) -> bool:
    """Whether there is such a column, of lists of objects with these fields."""
    kind = rows.schema.get(column)
    inner = kind.inner if isinstance(kind, pl.List) else None
    return isinstance(inner, pl.Struct) and {field.name for field in inner.fields} >= {*fields}


def _items(rows: pl.DataFrame, column: str, lengths: pl.Expr | None = None, **fields: pl.Expr) -> pl.DataFrame:
    """The items of a column of lists, one below the other: their `fields`, their `row`, and `lengths` of the row."""
    of_row = pl.lit(None) if lengths is None else lengths
    listed = pl.col(column).list.eval(pl.struct(*(field.alias(name) for name, field in fields.items())))
    items = rows.select(row=pl.int_range(pl.len()), lengths=of_row, item=listed).explode("item")
    return items.filter(pl.col("item").is_not_null()).unnest("item")


def _field(name: str) -> pl.Expr:
    return pl.element().struct.field(name)


def _length(name: str) -> pl.Expr:
    return _field(name).list.len()


def _end_of_span() -> pl.Expr:
    return _field("start").cast(pl.Int64) + _field("length")
