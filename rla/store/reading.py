"""Reading shard folders: complete ones of the right kind and version, whose parts are the files that they name.

Anyone may have written a shard. Its readers index tokens by the spans of steps, and walk lists of one number a token
side by side. So each part is checked as it is read: its SHA-256, its columns, and the rules that its rows keep
(`rla.store.schema`). Compression makes gigabytes of kilobytes, so the memory that rows may take is bounded.
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rla.errors import UserError
from rla.store.layout import rerun
from rla.store.manifest import (
    MANIFEST,
    PART,
    UnreadableFile,
    checked_manifest,
    file_digest,
    optional_json,
    refuse_irregular,
    unfinished,
)
from rla.store.records import Status, Task
from rla.store.schema import arrow_schema, check_columns, check_rows, load_schema

Entry = Mapping[str, Any]  # of a part in a manifest: name, rows, bytes, sha256

# Shards that others are joined with. Of rewards, training compares the keys itself.
_JOINED = frozenset({"trajectories", "scores", "verdicts", "standings"})
_STREAMED = 32  # rows that a stream decodes at a time
_READ_ROWS = 1024  # rows that any other reader decodes at a time
_GROWTH = 1000  # the rows of a file may take so many times its size in memory
LEAST_ROOM = 1 << 28  # bytes that they may take in any case
_NUMBER_BYTES = 8


def group_of(part: Path) -> int:
    """The index in the name of a part."""
    return int(part.stem.split("-")[1])


def shard_parts(folder: Path) -> list[Path]:
    """The files of a folder that have a part's name, in order of their groups. UserError if one is not a file."""
    return sorted((path for path in _named_like_parts(folder) if PART.fullmatch(path.name)), key=group_of)


def _named_like_parts(folder: Path) -> list[Path]:
    found = list(folder.glob("part-*.parquet"))
    for path in found:
        if path.is_dir():
            raise UserError(f"{path}: a folder with the name of a part; rla did not make it: move it away")
        if not path.is_file() and path.exists():
            raise UserError(f"{path}: a pipe, a socket or a device with the name of a part: move it away")
    return found


@contextmanager
def opened_part(path: Path, entry: Entry | None = None, *, remedy: str = "") -> Iterator[pq.ParquetFile]:
    """An opened Parquet file. Raises UserError for damage, also inside the block.

    `entry`: the part in a manifest. The opened file has to be that one, because another shard may have taken the place
    of both since the manifest was read. If no manifest names the file yet, the checksums of its pages are verified as
    they are read. `remedy`: the advice about a file that no stage has made.
    """
    try:
        refuse_irregular(path)
        with pa.OSFile(str(path)) as opened:
            if entry is not None:
                if hashlib.file_digest(opened, "sha256").hexdigest() != entry["sha256"]:
                    raise _other_part(path, "its sha256 differs")
                opened.seek(0)
            with pq.ParquetFile(opened, page_checksum_verification=entry is None) as file:
                yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if entry is not None and isinstance(error, FileNotFoundError):
            raise _other_part(path, "it is missing") from None
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):  # Arrow's own errors have no number
            raise UnreadableFile(f"{path}: cannot be read ({error.strerror}); mend that and call again") from None
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: not a readable Parquet file ({said}); {remedy or rerun(path)}") from None


def _other_part(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path}: not the part that {MANIFEST} names, for {reason}; if another call has replaced the shard meanwhile, "
        f"call this one again, otherwise {rerun(path.parent)}"
    )


def _room(size: int) -> int:
    """How many bytes the rows of files of `size` bytes may take in memory."""
    return max(LEAST_ROOM, _GROWTH * size)


def _too_large(path: Path, most: int) -> UserError:
    return UserError(
        f"{path}: its rows take more than {most >> 20:,} MiB of memory, {_GROWTH} times its size; "
        "leave the file out, or make it again"
    )


def column_batches(
    path: Path, file: pq.ParquetFile, columns: Sequence[str] | None, *, rows: int
) -> Iterator[pa.RecordBatch]:
    """The rows of the opened part `path` in batches of at most `rows`. UserError if a batch takes more than 1000 times
    the size of the file, and more than 256 MiB.

    The sizes in the footer are compared first: texts as they lie in the pages, and numbers, of which a page may hold
    any number. Texts that repeat share one entry of a dictionary, so no row takes more than its pages do, and so few
    rows are decoded at a time that these fit.
    """
    most = _room(path.stat().st_size)
    texts = numbers = 0
    for group in (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)):
        for chunk in (group.column(index) for index in range(group.num_columns)):
            place = f"{chunk.path_in_schema}."
            if columns is None or any(place.startswith(f"{name}.") for name in columns):
                if chunk.physical_type == "BYTE_ARRAY":
                    texts += chunk.total_uncompressed_size
                else:
                    numbers += chunk.num_values * _NUMBER_BYTES
    if texts + numbers > most:
        raise _too_large(path, most)
    size = max(1, min(rows, most // max(1, texts)))
    for batch in file.iter_batches(batch_size=size, columns=None if columns is None else list(columns)):
        if batch.nbytes > most:
            raise _too_large(path, most)
        yield batch


def read_manifest(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """The manifest of a complete shard, of the right kind and schema version."""
    path = folder / MANIFEST
    manifest = optional_json(path)
    if manifest is None:
        raise unfinished(folder)
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


def check_parts(folder: Path, manifest: Mapping[str, Any], *, whole: bool = False) -> None:
    """UserError unless the parts on disk have the names and sizes of a checked manifest, and with `whole` its digests.

    Readers compare the digest of each part as they open it.
    """
    listed = {part["name"]: part for part in manifest["parts"]}
    found = {path.name: path.stat().st_size for path in _named_like_parts(folder)}
    for name in sorted(listed.keys() | found.keys()):
        part = listed.get(name, {})
        if part.get("bytes") != found.get(name):
            raise UserError(
                f"{folder / name}: {found.get(name, 'no')} bytes, {MANIFEST} says {part.get('bytes', 'nothing')}; "
                f"the shard was changed or truncated: {rerun(folder)}"
            )
        if whole and file_digest(folder / name) != part["sha256"]:
            raise _other_part(folder / name, "its sha256 differs")


def listed_parts(folder: Path, kind: str) -> dict[Path, Entry]:
    """The parts of a complete shard in order, each with its entry in the manifest. UserError as `check_parts` raises
    it, and if a key is there twice in a shard that others are joined with.
    """
    manifest = read_manifest(folder, kind)
    check_parts(folder, manifest)
    if kind in _JOINED:
        _check_keys(folder, kind, tuple((part["name"], part["sha256"]) for part in manifest["parts"]))
    return {folder / part["name"]: part for part in manifest["parts"]}


@lru_cache(maxsize=64)  # once for each shard, which its entries identify
def _check_keys(folder: Path, kind: str, entries: tuple[tuple[str, str], ...]) -> None:
    """UserError if two rows have the same key: a join would repeat them, n * n times if both sides have n."""
    keys: list[str] = load_schema(kind)["key"]
    tables = [
        read_part(folder / name, keys, kind=kind, entry={"name": name, "sha256": sha256}) for name, sha256 in entries
    ]
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


def read_part(
    path: Path, columns: Sequence[str] | None = None, *, kind: str | None = None, entry: Entry | None = None
) -> pa.Table:
    """One Parquet file. `columns`: these alone, in this order; a nested one by its path, `steps.list.element.valid`.

    With a `kind`, UserError unless it has that kind's columns and its rows keep the kind's rules. With an `entry` of a
    manifest it is that part.
    """
    batches, read = [], 0
    with opened_part(path, entry) as file:  # `pq.read_table` would import pandas for it, which takes a second
        room = _room(path.stat().st_size)
        if kind is not None:
            check_columns(path, kind, file.schema_arrow)
        for batch in column_batches(path, file, columns or None, rows=_READ_ROWS):
            read += batch.nbytes
            if read > room:
                raise _too_large(path, room)
            batches.append(batch)
        table = pa.Table.from_batches(batches) if batches else file.read(columns=list(columns) if columns else None)
        if kind is not None:
            check_rows(path, kind, table)
    return table.select(list(columns)) if columns and {*columns} <= {*table.column_names} else table


def read_table(folder: Path, kind: str, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a complete shard, parts in order."""
    parts = listed_parts(folder, kind)
    room, tables = _room(sum(entry["bytes"] for entry in parts.values())), []
    for path, entry in parts.items():
        tables.append(read_part(path, columns, kind=kind, entry=entry))
        if sum(table.nbytes for table in tables) > room:
            raise _too_large(folder, room)
    schema = arrow_schema(kind)
    if columns:
        schema = pa.schema([schema.field(name) for name in columns])
    return pa.concat_tables(tables, promote_options="default") if tables else schema.empty_table()


def read_rows(folder: Path, kind: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """`read_table` as plain dictionaries."""
    return cast("list[dict[str, Any]]", read_table(folder, kind, columns).to_pylist())


def stream_rows(
    folder: Path, kind: str, columns: Sequence[str], *, keys: Collection[Any] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of a complete shard as plain dictionaries, one after the other: a few of a part are in memory at a time.

    With `keys` only rows whose first column is among them. A missing or truncated part is found before the first row; a
    damaged or replaced one when its turn comes.
    """
    for path, entry in listed_parts(folder, kind).items():
        yield from part_rows(path, columns, keys=keys, kind=kind, entry=entry)


def part_rows(
    path: Path,
    columns: Sequence[str],
    *,
    keys: Collection[Any] | None = None,
    kind: str | None = None,
    entry: Entry | None = None,
) -> Iterator[dict[str, Any]]:
    """`stream_rows` of one part. `kind` and `entry` as in `read_part`."""
    with opened_part(path, entry) as file:
        if kind is not None:
            check_columns(path, kind, file.schema_arrow)
        for batch in column_batches(path, file, columns, rows=_STREAMED):
            if kind is not None:
                check_rows(path, kind, pa.Table.from_batches([batch]))
            for index, key in enumerate(batch.column(columns[0]).to_pylist()):
                if keys is None or key in keys:
                    yield batch.slice(index, 1).to_pylist()[0]


DEEPEST = 200  # levels of a payload
TASK_FIELDS = tuple(entry.name for entry in fields(Task))
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[{\]}]', re.DOTALL)  # of JSON: a text as a whole, or a bracket


def read_tasks(folder: Path, kind: str = "tasks") -> list[Task]:
    """The tasks of a pool or candidates shard, every value checked. UserError if the pool is empty."""
    rows = read_rows(folder, kind)
    if kind == "tasks" and not rows:
        raise UserError(f"{folder}: the task pool is empty; make one with `rla make-tasks`")
    if kind == "candidates":
        rows = [row for row in rows if row["valid"]]
    names = [row["task_id"] for row in rows]
    if len(names) != len(set(names)):
        raise UserError(f"{folder}: a task is there twice; make the pool again")
    return list(map(as_task, rows))


def read_candidates(folder: Path) -> list[Task]:
    """Valid candidates; an empty list if the folder does not exist, as in the first iteration."""
    return read_tasks(folder, "candidates") if folder.exists() else []


def tasks_by_id(folder: Path, kind: str, wanted: Collection[str]) -> dict[str, Task]:
    """The tasks among `wanted` by id: a pool may hold thousands, each of tens of kilobytes."""
    return {row["task_id"]: as_task(row) for row in stream_rows(folder, kind, TASK_FIELDS, keys=wanted)}


def as_task(row: Mapping[str, Any]) -> Task:
    """The task of a row of a pool or of candidates, which may have more columns.

    UserError for a status that no task has, and for JSON that is nested too deeply.
    """
    task = Task(**{name: row[name] for name in TASK_FIELDS})
    if None in (task.task_id, task.payload, task.status) or task.status not in set(Status):
        raise UserError(f"task {task.task_id}: no payload, or a status that is none of {', '.join(Status)}")
    for name, text in (("payload", task.payload), ("edit", task.edit or "")):
        if nested_too_deeply(text):
            raise UserError(f"task {task.task_id}: its {name} is nested deeper than {DEEPEST} levels")
    return task


def nested_too_deeply(text: str) -> bool:
    """Whether a JSON text is nested more deeply than any environment's, so that Python could not read it."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth > DEEPEST:
            return True
    return False
