"""Rows of Parquet, JSON and JSON lines files, one at a time.

A folder is searched for files of a split: files that have `train`, say, as a part of their names
(`train-00000-of-00002.parquet`, `CodeContests_train.json`; `test2.jsonl` for `test`) or as one of their folders. A file
that is named explicitly belongs to any split. `.json` may hold one list or one object per line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, cast

from rla.errors import UserError
from rla_programs.coding.data.problems import InvalidProblem
from rla_programs.coding.importing.bounds import bounded_json

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = frozenset({".parquet", ".json", ".jsonl"})
NO_OBJECT = "not a JSON object"
AT_ONCE = 16  # rows of a batch: one row can hold megabytes of tests

Row = dict[str, Any]


def files_of(source: Path, split: str) -> list[Path]:
    """The files to read, in name order. Raises `UserError` if there are none."""
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
    """The relative file names that belong to the split."""
    part = re.compile(rf"(^|[-_.]){re.escape(split)}([-_.0-9]|$)")
    paths = [PurePath(name) for name in names]
    return [
        str(path) for path in paths if path.suffix in SUFFIXES and (part.search(path.stem) or split in path.parts[:-1])
    ]


def data_rows(path: Path) -> Iterator[Callable[[], Row]]:
    """The rows of a file, as functions that return a row, or raise InvalidProblem if it is not an object or too large.
    Raises `UserError` if the file cannot be read.
    """
    try:
        yield from _parquet(path) if path.suffix == ".parquet" else _json(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error


def _parquet(path: Path) -> Iterator[Callable[[], Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=AT_ONCE):
                yield from (partial(_at, batch, number) for number in range(batch.num_rows))
    except pa.ArrowException as error:
        raise UserError(f"{path}: cannot be read: {error}") from error


def _at(batch: pa.RecordBatch, number: int) -> Row:
    (row,) = batch.slice(number, 1).to_pylist()
    return cast(Row, row)


def _json(path: Path) -> Iterator[Callable[[], Row]]:
    with path.open(encoding="utf-8-sig") as file:
        start = file.read(1)
        while start.isspace():
            start = file.read(1)
        file.seek(0)
        if start == "[":
            yield from _list(path, file.read())
        else:
            yield from (partial(_line, line) for line in file if line.strip())


def _list(path: Path, text: str) -> Iterator[Callable[[], Row]]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    yield from (partial(_object, value) for value in values)


def _line(line: str) -> Row:
    try:
        return _object(bounded_json(line))
    except InvalidProblem:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidProblem(NO_OBJECT) from error


def _object(value: Any) -> Row:
    if not isinstance(value, dict):
        raise InvalidProblem(NO_OBJECT)
    return value
