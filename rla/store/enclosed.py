"""Records of a shard folder: JSON inside a Parquet file that has no rows, so that readers of Parquet open the folder.

    PAR1 newline | JSON text | footer | length of the footer, 4 bytes | PAR1

The footer names the columns of the shard's kind. Polars refuses a folder in which one file is not Parquet, wherever
it lies and whatever its name; `datasets` takes the type that most files have. pandas and pyarrow pass over names that
begin with an underscore, and the others find no row.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rla.store.atomic import create_file, json_text, write_content

MAGIC, BEGIN, LENGTH = b"PAR1", b"PAR1\n", 4


def enclose(text: bytes, kind: str) -> bytes:
    """The file that holds a record of a shard of that kind."""
    return BEGIN + text + _footer(kind)


def enclosed_text(content: bytes) -> bytes:
    """The text of a record, from the content of its file; that of any other file is its text."""
    if not content.startswith(BEGIN):
        return content
    tail = LENGTH + len(MAGIC)
    return content[len(BEGIN) : -tail - int.from_bytes(content[-tail : -len(MAGIC)], "little")]


@cache
def _footer(kind: str) -> bytes:
    import pyarrow.parquet as pq

    from rla.store.schema import arrow_schema

    empty = io.BytesIO()
    pq.ParquetWriter(empty, arrow_schema(kind)).close()  # no row group: `datasets` fails where one has no rows
    return empty.getvalue().removeprefix(MAGIC)


def write_record(path: Path, kind: str, data: Mapping[str, Any], *, writer: str = "") -> None:
    """A record of a shard of that kind, atomically."""
    write_content(path, enclose(json_text(data).encode(), kind), writer=writer)


def create_record(path: Path, kind: str, data: Mapping[str, Any], *, writer: str = "") -> bool:
    """Write the record unless it is there; whether this call made it. Of several callers at once one makes it."""
    return create_file(path, enclose(json_text(data).encode(), kind), writer=writer)
