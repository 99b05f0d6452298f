"""Records of a shard folder: their text, and the Parquet file that holds it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from rla.errors import UserError
from rla.store.manifest import MANIFEST, record_text
from rla.store.reading import read_manifest, read_rows
from rla.store.shards import ShardWriter
from tests.unit.store.shard_damage import OURS, grow, names_of


def test_a_record_is_its_text_in_a_file_that_readers_of_parquet_find_empty(tmp_path: Path) -> None:
    grow(tmp_path)
    content = (tmp_path / MANIFEST).read_bytes()
    text = record_text(content)
    assert content.startswith(b'PAR1\n{\n "kind": "tasks",') and json.loads(text) == read_manifest(tmp_path)
    assert record_text(text) == text
    assert pl.read_parquet(tmp_path / MANIFEST).shape == (0, pl.read_parquet(tmp_path / "part-00000.parquet").width)


def test_a_record_that_is_cut_short_is_named(tmp_path: Path) -> None:
    grow(tmp_path)
    content = (tmp_path / MANIFEST).read_bytes()
    for kept in (0, 4, 5, 9, 100, len(content) // 2, len(content) - 1):
        (tmp_path / MANIFEST).write_bytes(content[:kept])
        with pytest.raises(UserError, match=MANIFEST):
            read_manifest(tmp_path)


def test_a_manifest_of_others_beside_a_shard_stays(tmp_path: Path) -> None:
    grow(tmp_path)
    (tmp_path / "manifest.json").write_text('{"name": "my app"}')
    assert ShardWriter(tmp_path, "tasks", OURS).complete
    assert (tmp_path / "manifest.json").read_text() == '{"name": "my app"}'
    assert [row["task_id"] for row in read_rows(tmp_path, "tasks")] == names_of(OURS)
