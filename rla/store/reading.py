"""Reading shard folders: complete ones of the right kind and version, whose parts are those of their manifest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

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
from rla.store.row_rules import check_columns, check_rows
from rla.store.schema import arrow_schema, load_schema
from rla.store.slices import MANIFEST, optional_record, unfinished

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
    _verify_parts(folder, manifest, whole=whole)
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


def _verify_parts(folder: Path, manifest: Mapping[str, Any], *, whole: bool) -> None:
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
