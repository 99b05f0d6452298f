"""Columns that a row may lack: a part has them all, and there they are null."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rla.errors import UserError
from rla.store.reading import read_part, read_rows
from rla.store.records import ShownImage
from rla.store.shards import Origin, ShardWriter
from tests.unit.builders import step, trajectory

IMAGE = ShownImage(digest="ab" * 32, png=b"\x89PNG\x00\xff", shown=[{"observation": 0, "position": 0}])


def shard(folder: Path) -> Path:
    """Of three rows one has values in two of the columns."""
    writer = ShardWriter(folder, "trajectories", Origin(config="c", inputs={}, seed=0))
    writer.write(0, [trajectory("a").row()])
    writer.write(1, [trajectory("b", reward=0.5, images=[IMAGE]).row(), trajectory("c").row()])
    writer.finish()
    return folder


def test_places_are_null_where_the_environment_names_none(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, "trajectories", Origin(config="c", inputs={}, seed=0))
    writer.write(0, [trajectory("a").row()])
    writer.write(1, [trajectory("b", steps=[step(), step()], places=["aa", None]).row()])
    writer.finish()
    assert [row["places"] for row in read_rows(tmp_path, "trajectories")] == [None, ["aa", None]]


def test_bytes_come_back_and_a_row_without_the_column_reads_as_null(tmp_path: Path) -> None:
    rows = {row["trajectory_id"]: row for row in read_rows(shard(tmp_path), "trajectories")}
    assert [rows[name]["reward"] for name in "abc"] == [None, 0.5, None]
    assert [rows[name]["images"] for name in "ac"] == [None, None]
    (image,) = rows["b"]["images"]
    assert (image["digest"], image["png"], image["shown"]) == (IMAGE.digest, IMAGE.png, IMAGE.shown)


def test_a_part_that_lacks_a_column_is_refused(tmp_path: Path) -> None:
    part = shard(tmp_path) / "part-00000.parquet"
    pq.write_table(pq.read_table(part).drop_columns(["images"]), part)
    with pytest.raises(UserError, match=r"part-00000\.parquet: no part of a trajectories shard, .*: images"):
        read_part(part, kind="trajectories")
