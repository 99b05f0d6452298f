"""Rules between columns of a shard that no schema can state, such as spans of steps that lie within their segment.

They are computed without polars, whose threads would keep the reader of a shard from forking.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_Ints = npt.NDArray[np.int64]
_Broken = tuple[_Ints, str]  # the rows that break a rule, and the rule


def broken_rule(kind: str, table: pa.Table) -> str:
    """The first rule that a row of trajectories or scores breaks, and the row; empty if they keep all."""
    rules = {"trajectories": _trajectory_rules, "scores": _score_rules}
    for rows, rule in rules[kind](table) if kind in rules else ():
        if len(rows):
            return f"row {rows[0]} of these: {rule}"
    return ""


def _trajectory_rules(table: pa.Table) -> Iterator[_Broken]:
    steps, segments = _Nested.of(table, "steps"), _Nested.of(table, "segments")
    if segments is not None and segments.has("token_ids", "sampled", "logprobs", "allowed"):
        tokens, sampled = segments.lengths("token_ids"), segments.sums("sampled")
        same = (tokens == segments.lengths("logprobs")) & (tokens == segments.lengths("sampled"))
        yield segments.rows[~same], "token columns of a segment have different lengths"
        yield (
            segments.rows[segments.lengths("allowed") != sampled],
            "a segment lacks the allowed ids of a sampled token",
        )
    if steps is not None and segments is not None and steps.has("segment", "start", "end"):
        own, start, end = (steps.values(name) for name in ("segment", "start", "end"))
        has_tokens = segments.counts[steps.rows] > 0  # scripted episodes have no tokens
        yield steps.rows[has_tokens & (own >= segments.counts[steps.rows])], "a step names a segment that is not there"
        if segments.has("token_ids"):
            length = np.zeros(len(own), dtype=np.int64)
            place = (segments.starts[steps.rows] + own)[has_tokens]
            length[has_tokens] = segments.lengths("token_ids")[place]
            yield steps.rows[(start > end) | (end > length)], "the span of a step is not within its segment"
    if steps is not None:
        places = _Nested.of(table, "places")
        if places is not None:
            odd = places.given & (places.counts != steps.counts)
            yield np.flatnonzero(odd), "places are not as many as steps"
    spans = _Nested.of(table, "image_spans")
    if spans is not None and segments is not None and segments.has("token_ids"):
        own = spans.values("segment")
        there = own < segments.counts[spans.rows]
        yield spans.rows[~there], "a picture stands in a segment that is not there"
        length = segments.lengths("token_ids")[segments.starts[spans.rows] + own]
        ends = spans.values("start").astype(np.int64) + spans.values("length")
        yield spans.rows[ends > length], "a picture stands behind the end of its segment"


def _score_rules(table: pa.Table) -> Iterator[_Broken]:
    votes = _Nested.of(table, "judgements")
    if votes is not None and votes.has("token_ids", "logprobs", "allowed"):
        tokens = votes.lengths("token_ids")
        same = (tokens == votes.lengths("logprobs")) & (tokens == votes.lengths("allowed"))
        yield votes.rows[~same], "token columns of a judgement have different lengths"
    spans = _Nested.of(table, "image_spans")
    if spans is not None and "prompt_ids" in table.column_names:
        length = _lengths(table.column("prompt_ids").combine_chunks())
        ends = spans.values("start").astype(np.int64) + spans.values("length")
        yield spans.rows[ends > length[spans.rows]], "a picture stands behind the end of the prompt"


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
