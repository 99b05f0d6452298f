"""The columns of a part: those of its kind's schema, and nothing else. Anyone may have written the file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from rla.errors import UserError
from rla.store.manifests import rerun
from rla.store.schema import arrow_schema


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
