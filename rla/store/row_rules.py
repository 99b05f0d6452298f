"""The rules of a part: it has the columns of its kind, and its rows keep rules that no schema of one column can state.

Anyone may have written a shard. Whoever reads one indexes tokens by the spans of steps, and takes lists of one token
each side by side; so a part is checked as it is read, column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rla.errors import UserError
from rla.store.manifests import rerun
from rla.store.schema import arrow_schema, check_table

REWARDS = frozenset({"policy_rewards", "rm_rewards"})  # training compares them with their tokens, and names both
Ints = npt.NDArray[np.int64]
Broken = tuple[Ints, str]  # the rows that break a rule, and the rule


def check_rows(path: Path, kind: str, table: pa.Table) -> None:
    """UserError, which names the part, for a value that its schema does not allow and for a row that breaks a rule.

    The table may have some of the kind's columns alone, and some of their nested ones.
    """
    if kind in REWARDS:
        return
    try:
        check_table(kind, table)
    except UserError as error:
        raise UserError(f"{path}: {error}; {rerun(path)}") from None
    for rows, rule in RULES.get(kind, lambda table: iter(()))(table):
        if len(rows):
            raise UserError(f"{path}: row {rows[0]} of these: {rule}; {rerun(path)}")


def _trajectory_rules(table: pa.Table) -> Iterator[Broken]:
    steps, segments = Nested.of(table, "steps"), Nested.of(table, "segments")
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
        places = Nested.of(table, "places")
        if places is not None:
            odd = places.given & (places.counts != steps.counts)
            yield np.flatnonzero(odd), "places are not as many as steps"
    spans = Nested.of(table, "image_spans")
    if spans is not None and segments is not None and segments.has("token_ids"):
        own = spans.values("segment")
        there = own < segments.counts[spans.rows]
        yield spans.rows[~there], "a picture stands in a segment that is not there"
        length = segments.lengths("token_ids")[segments.starts[spans.rows] + own]
        ends = spans.values("start").astype(np.int64) + spans.values("length")
        yield spans.rows[ends > length], "a picture stands behind the end of its segment"


def _score_rules(table: pa.Table) -> Iterator[Broken]:
    votes = Nested.of(table, "judgements")
    if votes is not None and votes.has("token_ids", "logprobs", "allowed"):
        tokens = votes.lengths("token_ids")
        same = (tokens == votes.lengths("logprobs")) & (tokens == votes.lengths("allowed"))
        yield votes.rows[~same], "token columns of a judgement have different lengths"
    spans = Nested.of(table, "image_spans")
    if spans is not None and "prompt_ids" in table.column_names:
        length = _lengths(_whole(table, "prompt_ids"))
        ends = spans.values("start").astype(np.int64) + spans.values("length")
        yield spans.rows[ends > length[spans.rows]], "a picture stands behind the end of the prompt"


RULES: dict[str, Callable[[pa.Table], Iterator[Broken]]] = {
    "trajectories": _trajectory_rules,
    "scores": _score_rules,
}


class Nested:
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
    def of(cls, table: pa.Table, name: str) -> Nested | None:
        return cls(_whole(table, name)) if name in table.column_names else None

    def has(self, *names: str) -> bool:
        """Whether the items are objects with these columns."""
        kind = self._items.type
        return pa.types.is_struct(kind) and {kind.field(index).name for index in range(kind.num_fields)} >= set(names)

    def values(self, name: str) -> Ints:
        found: Ints = self._items.field(name).to_numpy(zero_copy_only=False)
        return found

    def lengths(self, name: str) -> Ints:
        return _lengths(self._items.field(name))

    def sums(self, name: str) -> Ints:
        """How many items of each inner list of truths are true."""
        inner = self._items.field(name)
        total = np.concatenate([[0], np.cumsum(inner.flatten().to_numpy(zero_copy_only=False), dtype=np.int64)])
        ends = np.cumsum(_lengths(inner))
        sums: Ints = total[ends] - total[ends - _lengths(inner)]
        return sums


def _whole(table: pa.Table, name: str) -> Any:
    return table.column(name).combine_chunks()


def _lengths(lists: pa.ListArray) -> Ints:
    """Of each list; 0 for one that is null."""
    found: Ints = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def check_columns(path: Path, kind: str, found: pa.Schema) -> None:
    """UserError where a part of these columns lacks one of its kind, or one is unknown or of another type."""
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
