"""Rows of Parquet, JSON and JSON lines files, one at a time.

A folder is searched for files of a split: `train` is the files that have it as a part of their name
(`train-00000-of-00002.parquet`, `CodeContests_train.json`, `test2.jsonl` for `test`) or as one of their folders. A
file that is named itself is of any split. `.json` may hold one list or one object per line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rla.errors import UserError

SUFFIXES = frozenset({".parquet", ".json", ".jsonl"})
AT_ONCE = 16  # rows of a batch: one row can hold megabytes of tests

Row = dict[str, Any]


def files_of(source: Path, split: str) -> list[Path]:
    """The files to read, in name order. Raises `UserError` when there is none."""
    if source.is_file():
        if source.suffix not in SUFFIXES:
            raise UserError(f"{source}: not one of {', '.join(sorted(SUFFIXES))}")
        return [source]
    if not source.is_dir():
        raise UserError(f"{source}: no such file or folder; for a data set of the Hub write hub:owner/name")
    found = sorted(path for path in source.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    wanted = {name for name in of_split([str(path.relative_to(source)) for path in found], split)}
    chosen = [path for path in found if str(path.relative_to(source)) in wanted]
    if not chosen:
        raise UserError(f"{source}: no data file of the split {split!r} among {len(found)}; name the file itself")
    return chosen


def of_split(names: Sequence[str], split: str) -> list[str]:
    """Those of the relative file names that belong to the split."""
    part = re.compile(rf"(^|[-_.]){re.escape(split)}([-_.0-9]|$)")
    paths = [PurePath(name) for name in names]
    return [
        str(path) for path in paths if path.suffix in SUFFIXES and (part.search(path.stem) or split in path.parts[:-1])
    ]


def data_rows(path: Path) -> Iterator[Row | None]:
    """The rows of a file, nothing where a row is no object. Raises `UserError` when the file cannot be read."""
    try:
        yield from _parquet(path) if path.suffix == ".parquet" else _json(path)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error


def _parquet(path: Path) -> Iterator[Row]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=AT_ONCE):
            yield from batch.to_pylist()


def _json(path: Path) -> Iterator[Row | None]:
    with path.open(encoding="utf-8-sig") as file:
        start = file.read(1)
        while start.isspace():
            start = file.read(1)
        file.seek(0)
        if start == "[":
            yield from _list(path, file.read())
        else:
            yield from (_object(line) for line in file if line.strip())


def _list(path: Path, text: str) -> Iterator[Row | None]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    yield from (value if isinstance(value, dict) else None for value in values)


def _object(line: str) -> Row | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
