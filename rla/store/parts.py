"""One part of a shard: a Parquet file that says in its footer where it belongs.

Key-value metadata beside `rla_kind` and `rla_schema_version`:

    rla_origin   digest of what the shard is made from (`origin_digest`)
    rla_group    index of the group, which the file's name says too
    rla_keys     digest of the key columns

Every page has a CRC-32, which is verified whenever the page is read. The footer has none, so the manifest names its
SHA-256, which readers check, and that of the whole file, which is checked where a shard is finished or carried on.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rla.errors import UserError
from rla.store.manifests import rerun
from rla.store.regular import refuse_irregular
from rla.store.schema import arrow_schema, load_schema

ORIGIN, GROUP, KEYS = "rla_origin", "rla_group", "rla_keys"
KIND, VERSION = "rla_kind", "rla_schema_version"
NAME = re.compile(r"part-(\d{5,})\.parquet")
GROWTH = 1000  # times the size of a file that its rows may take in memory
LEAST_ROOM = 1 << 28  # bytes that they may take in any case
READ_ROWS = 1024  # decoded at a time
NUMBER_BYTES = 8
GUESSED = 1 << 14  # bytes at the end of a file in which a footer lies, mostly


class ForeignPart(UserError):
    """A part that is whole and belongs elsewhere."""


def part_name(group: int) -> str:
    """`part-00007.parquet`."""
    return f"part-{group:05d}.parquet"


def group_of(part: Path) -> int:
    """The index in the name of a part."""
    return int(part.stem.split("-")[1])


def shard_parts(folder: Path) -> list[Path]:
    """The files of a folder that have a part's name, in order of their groups. Raises UserError for a folder of such
    a name.
    """
    return sorted((path for path in named_like_parts(folder) if NAME.fullmatch(path.name)), key=group_of)


def named_like_parts(folder: Path) -> list[Path]:
    """Raises UserError where one of them is a folder, which no stage has made."""
    found = list(folder.glob("part-*.parquet"))
    for path in found:
        if path.is_dir():
            raise UserError(f"{path}: a folder with the name of a part; rla did not make it: move it away")
        if not path.is_file() and path.exists():
            raise UserError(f"{path}: a pipe, a socket or a device with the name of a part: move it away")
    return found


def origin_digest(header: Mapping[str, Any]) -> str:
    """16 hex digits of what a shard is made from: kind, schema version, digests of config and inputs, seed."""
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()[:16]


def keys_digest(kind: str, table: pa.Table) -> str:
    """16 hex digits of the key columns of a table, whose rows are in order."""
    columns = [table.column(name).to_pylist() for name in load_schema(kind)["key"]]
    return hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:16]


def write_part(path: Path, table: pa.Table, *, kind: str, origin: str, group: int) -> None:
    """A table of the kind's schema as the part of a group. The same rows give the same bytes."""
    belongs = {ORIGIN: origin, GROUP: str(group), KEYS: keys_digest(kind, table)}
    with pq.ParquetWriter(path, table.schema, compression="zstd", write_page_checksum=True) as writer:
        if table.num_rows:  # the `datasets` library fails on a group of no rows, not on a file without groups
            writer.write_table(table)
        writer.add_key_value_metadata(belongs)


def read_columns(path: Path, file: pq.ParquetFile, columns: Sequence[str] | None, *, most: int) -> pa.Table:
    """All rows of an opened part. UserError if they take more than `most` bytes, before they take much more."""
    batches, read = [], 0
    for batch in column_batches(path, file, columns, most=most, rows=READ_ROWS):
        read += batch.nbytes
        if read > most:
            raise too_large(path, most)
        batches.append(batch)
    if not batches:
        return file.read(columns=None if columns is None else list(columns))
    return pa.Table.from_batches(batches)


def column_batches(
    path: Path, file: pq.ParquetFile, columns: Sequence[str] | None, *, most: int, rows: int
) -> Iterator[pa.RecordBatch]:
    """The rows of an opened part in batches of at most `rows`. UserError if a batch takes more than `most` bytes.

    Compression and dictionaries make gigabytes of a file of kilobytes. What its footer says is compared first: texts as
    they lie in the pages, and numbers, of which a page may hold any number. Texts that repeat share one entry of a
    dictionary, so no row takes more than its pages do, and so few rows are decoded at a time that these fit.
    """
    texts = numbers = 0
    for group in (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)):
        for chunk in (group.column(index) for index in range(group.num_columns)):
            place = f"{chunk.path_in_schema}."
            if columns is None or any(place.startswith(f"{name}.") for name in columns):
                if chunk.physical_type == "BYTE_ARRAY":
                    texts += chunk.total_uncompressed_size
                else:
                    numbers += chunk.num_values * NUMBER_BYTES
    if texts + numbers > most:
        raise too_large(path, most)
    size = max(1, min(rows, most // max(1, texts)))
    for batch in file.iter_batches(batch_size=size, columns=None if columns is None else list(columns)):
        if batch.nbytes > most:
            raise too_large(path, most)
        yield batch


def most_bytes(size: int) -> int:
    """How many bytes the rows of files of `size` bytes may take in memory."""
    return max(LEAST_ROOM, GROWTH * size)


def too_large(path: Path, most: int) -> UserError:
    return UserError(
        f"{path}: its rows take more than {most >> 20:,} MiB of memory, {GROWTH} times its size; "
        "leave the file out, or make it again"
    )


@contextmanager
def opened_part(path: Path, entry: Mapping[str, Any] | None = None, *, remedy: str = "") -> Iterator[pq.ParquetFile]:
    """The file, whose pages are verified as they are read. Raises UserError for damage, also inside the block.

    `entry`: what a manifest says of the part. The file that was opened has to be that one: since somebody compared the
    part with its manifest, another shard may have taken the place of both. `remedy`: what to do about a file that no
    stage has made.
    """
    try:
        refuse_irregular(path)
        with pa.OSFile(str(path)) as opened:
            if entry is not None and not _is_entry(opened, entry):
                raise replaced_meanwhile(path)
            with pq.ParquetFile(opened, page_checksum_verification=True) as file:
                yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if entry is not None and isinstance(error, FileNotFoundError):
            raise replaced_meanwhile(path) from None
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: not a readable Parquet file ({said}); {remedy or rerun(path)}") from None


def replaced_meanwhile(path: Path) -> UserError:
    """The error of a reader that has begun with other parts of the shard."""
    return UserError(f"{path}: replaced while the shard was read; call the stage again")


def part_entry(path: Path, *, name: str | None = None) -> dict[str, Any]:
    """What a manifest says of a part: name, rows, bytes and digests. `name`: the one it will get."""
    with opened_part(path) as file:
        rows = file.metadata.num_rows
    return _entry(path, rows, name or path.name)


def _entry(path: Path, rows: int, name: str) -> dict[str, Any]:
    digests = {"sha256": file_digest(path), "footer_sha256": footer_digest(path)}
    return {"name": name, "rows": rows, "bytes": path.stat().st_size, **digests}


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def footer_digest(path: Path) -> str:
    """SHA-256 of a Parquet file's footer with the eight bytes after it: its length, and `PAR1`. A file that has none
    gives another digest.
    """
    with pa.OSFile(str(path)) as file:
        return _footer_digest(file)


def _footer_digest(file: pa.NativeFile) -> str:
    end = _end(file, GUESSED)
    length = int.from_bytes(end[-8:-4], "little") + 8
    if length > len(end):
        end = _end(file, length)
    return hashlib.sha256(end[-length:]).hexdigest()


def _end(file: pa.NativeFile, length: int) -> bytes:
    size = file.size()
    found: bytes = file.read_at(min(length, size), max(0, size - length))
    return found


def _is_entry(file: pa.NativeFile, entry: Mapping[str, Any]) -> bool:
    return bool(file.size() == entry["bytes"] and _footer_digest(file) == entry["footer_sha256"])


def checked_entry(path: Path, kind: str, origin: str) -> dict[str, Any]:
    """`part_entry` of a part that an earlier call has finished, after all of it has been read.

    Raises UserError for damage, and ForeignPart where it is of another kind, origin or group.
    """
    with opened_part(path) as file:
        said = _belonging(path, file, kind, origin)
        table = read_columns(path, file, None, most=most_bytes(path.stat().st_size))
        if keys_digest(kind, table) != said.get(KEYS):
            raise UserError(f"{path}: not the keys that it was written with; {rerun(path)}")
    return _entry(path, table.num_rows, path.name)


def check_belonging(path: Path, kind: str, origin: str) -> None:
    """ForeignPart unless the footer names this kind, origin and group; UserError where there is no footer."""
    with opened_part(path) as file:
        _belonging(path, file, kind, origin)


def _belonging(path: Path, file: pq.ParquetFile, kind: str, origin: str) -> dict[str, str]:
    """What the footer says, checked."""
    said = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    columns = file.schema_arrow
    belongs = {ORIGIN: origin, GROUP: str(group_of(path))}
    expected = {KIND: kind, VERSION: str(load_schema(kind)["version"]), **belongs}
    differing = [key.removeprefix("rla_") for key, value in expected.items() if said.get(key) != value]
    if differing:
        raise ForeignPart(f"{path}: a part of another {' and '.join(differing)}")
    if not columns.equals(arrow_schema(kind)):
        raise UserError(f"{path}: its columns are not those of its kind; {rerun(path)}")
    return said
