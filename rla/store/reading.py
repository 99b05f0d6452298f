"""Reading shard folders: complete ones of the right kind and version, whose parts are those of their manifest.

Anyone may have written a shard. Whoever reads one indexes tokens by the spans of steps, and takes lists of one token
each side by side. So a part is checked as it is read, column by column: it has the columns of its kind, and its rows
keep rules that no schema of a single column can state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rla.errors import UserError
from rla.store.manifests import checked_manifest, rerun
from rla.store.parts import (
    column_batches,
    file_digest,
    footer_digest,
    most_bytes,
    named_like_parts,
    opened_part,
    read_columns,
)
from rla.store.schema import arrow_schema, check_table, load_schema
from rla.store.slices import MANIFEST, optional_record, unfinished

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


JOINED = frozenset({"trajectories", "scores", "verdicts", "standings"})  # rewards: training compares them itself
STREAMED = 32  # rows that a stream decodes at a time

Entry = Mapping[str, Any]  # what a manifest says of one of its parts


def read_manifest(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """The manifest of a complete shard, of the right kind and schema version."""
    found = optional_record(folder, MANIFEST)
    if found is None:
        raise unfinished(folder)
    path, manifest = found
    if kind is not None:
        if manifest.get("kind") != kind:
            raise UserError(f"{path}: a shard of kind {manifest.get('kind')!r}; expected {kind!r}")
        version = load_schema(kind)["version"]
        if manifest.get("schema_version") != version:
            raise UserError(
                f"{path}: schema version {manifest.get('schema_version')}, this program reads version {version}; "
                f"{rerun(path)}"
            )
    return checked_manifest(path, manifest)


def verify_shard(folder: Path, manifest: Mapping[str, Any], *, whole: bool = False) -> None:
    """The parts on disk are those of a manifest that was checked: their sizes and footers, with `whole` every byte.
    Pages are verified as they are read. In a shard that others are
    joined with, no key is there twice.
    """
    listed = {part["name"]: part for part in manifest["parts"]}
    found = {path.name: path.stat().st_size for path in named_like_parts(folder)}
    for name in sorted(listed.keys() | found.keys()):
        part = listed.get(name, {})
        if part.get("bytes") != found.get(name):
            raise UserError(
                f"{folder / name}: {found.get(name, 'no')} bytes, {MANIFEST} says {part.get('bytes', 'nothing')}; "
                f"the shard was changed or truncated: {rerun(folder)}"
            )
        key, measured = ("sha256", file_digest) if whole else ("footer_sha256", footer_digest)
        if measured(folder / name) != part[key]:
            raise UserError(
                f"{folder / name}: not the part that {MANIFEST} names, for its {key} differs; "
                f"the shard was changed or damaged: {rerun(folder)}"
            )
    kind = manifest.get("kind")
    if kind in JOINED:
        entries = tuple((part["name"], part["bytes"], part["sha256"]) for part in manifest["parts"])
        check_keys(folder, kind, entries)


@lru_cache(maxsize=64)
def check_keys(folder: Path, kind: str, entries: tuple[tuple[str, int, str], ...]) -> None:
    """UserError if two rows of a shard have the same key: whatever is joined with it would be there twice, and a key
    that is there n times in two shards n * n times. `entries`: of its parts, so that a shard is looked at once.
    """
    keys: list[str] = load_schema(kind)["key"]
    tables = [read_part(folder / name, keys, kind=kind) for name, _, _ in entries]
    if not tables:
        return
    counts = pa.concat_tables(tables, promote_options="default").group_by(keys).aggregate([([], "count_all")])
    if counts.num_rows == sum(table.num_rows for table in tables):
        return
    row = counts.filter(pc.greater(counts["count_all"], 1)).slice(0, 1).to_pylist()[0]
    named = ", ".join(f"{name} {row[name]}" for name in keys)
    raise UserError(
        f"{folder}: {named} is there {row['count_all']} times; rerun the stage that made it with --overwrite"
    )


def damaged(folder: Path, manifest: Mapping[str, Any], *, tolerate: bool) -> bool:
    """Whether parts are missing, changed or unreadable. Such a shard is an error unless it may be made again."""
    try:
        checked_manifest(folder / MANIFEST, manifest)
        verify_shard(folder, manifest, whole=True)
    except UserError:
        if not tolerate:
            raise
        return True
    return False


def read_part(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    kind: str | None = None,
    entry: Entry | None = None,
    most: int | None = None,
) -> pa.Table:
    """One Parquet file; columns in the order asked for. With a `kind` it has that kind's columns and rows that keep its
    rules, or UserError. With an `entry` of a manifest it is that part. `most`: bytes that its rows may take in memory.

    `pq.read_table` would import pandas for it, a second, as the first array that is made of Python values does.
    """
    with opened_part(path, entry) as file:
        room = most_bytes(path.stat().st_size) if most is None else most
        if kind is not None:
            check_columns(path, kind, file.schema_arrow)
        table = read_columns(path, file, columns or None, most=room)
        if kind is not None:
            check_rows(path, kind, table)
        if not columns:
            return table
    return table.select(list(columns))


def read_table(folder: Path, kind: str, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a complete shard, parts in order."""
    manifest = read_manifest(folder, kind)
    verify_shard(folder, manifest)
    left = most_bytes(sum(part["bytes"] for part in manifest["parts"]))
    tables = []
    for part in manifest["parts"]:
        tables.append(read_part(folder / part["name"], columns, kind=kind, entry=part, most=left))
        left -= tables[-1].nbytes
    schema = arrow_schema(kind)
    if columns:
        schema = pa.schema([schema.field(name) for name in columns])
    return pa.concat_tables(tables, promote_options="default") if tables else schema.empty_table()


def read_rows(folder: Path, kind: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """`read_table` as plain dictionaries."""
    rows: list[dict[str, Any]] = read_table(folder, kind, columns).to_pylist()
    return rows


def stream_rows(
    folder: Path, kind: str, columns: Sequence[str], *, keys: Collection[Any] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of a complete shard as plain dictionaries, one after the other: a few of a part are in memory at a time.

    With `keys` only rows whose first column is among them. A part that is missing, foreign or truncated is found before
    the first row. A damaged page is found when it is its turn, and so is a part that has been replaced since.
    """
    for _, row in stream_placed_rows(folder, kind, columns, keys=keys):
        yield row


def stream_placed_rows(
    folder: Path, kind: str, columns: Sequence[str], *, keys: Collection[Any] | None = None
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """`stream_rows`, each row with the file of its part."""
    manifest = read_manifest(folder, kind)
    verify_shard(folder, manifest)
    for part in manifest["parts"]:
        path = folder / part["name"]
        yield from ((path, row) for row in part_rows(path, columns, keys=keys, kind=kind, entry=part))


def part_rows(
    path: Path,
    columns: Sequence[str],
    *,
    keys: Collection[Any] | None = None,
    kind: str | None = None,
    entry: Entry | None = None,
) -> Iterator[dict[str, Any]]:
    """`stream_rows` of one part. `kind` and `entry` as `read_part` has them."""
    with opened_part(path, entry) as file:
        if kind is not None:
            check_columns(path, kind, file.schema_arrow)
        most = most_bytes(path.stat().st_size)
        for batch in column_batches(path, file, columns, most=most, rows=STREAMED):
            if kind is not None:
                check_rows(path, kind, pa.Table.from_batches([batch]))
            found = batch.column(columns[0]).to_pylist()
            for index, key in enumerate(found):
                if keys is None or key in keys:
                    yield batch.slice(index, 1).to_pylist()[0]


def read_nested(
    path: Path, columns: Sequence[str], *, kind: str | None = None, entry: Entry | None = None
) -> list[dict[str, Any]]:
    """The rows of one part with nothing but `columns`: a nested one by its path, `steps.list.element.valid`. `kind` and
    `entry` as `read_part` has them.
    """
    rows: list[dict[str, Any]] = nested_columns(path, columns, kind=kind, entry=entry).to_pylist()
    return rows


def nested_columns(
    path: Path, columns: Sequence[str], *, kind: str | None = None, entry: Entry | None = None
) -> pa.Table:
    """`read_nested` as a table, which makes no Python object of each token."""
    with opened_part(path, entry) as file:
        if kind is not None:
            check_columns(path, kind, file.schema_arrow)
        table = read_columns(path, file, columns, most=most_bytes(path.stat().st_size))
    if kind is not None:
        check_rows(path, kind, table)
    return table
