"""Columns that a part of an earlier version may lack: they read as null beside parts that have them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from rla.store.reading import read_rows, stream_rows
from rla.store.records import ShownImage
from rla.store.schema import arrow_schema, to_table
from rla.store.shards import Origin, ShardWriter
from tests.unit.builders import step, trajectory

IMAGE = ShownImage(digest="ab" * 32, png=b"\x89PNG\x00\xff", shown=[{"observation": 0, "position": 0}])


def shard(folder: Path) -> Path:
    """A part without the columns, and one with values in two of them."""
    writer = ShardWriter(folder, "trajectories", Origin(config="c", inputs={}, seed=0))
    table = to_table("trajectories", [trajectory("a").row()])
    writer.write_table(0, table.select(arrow_schema("trajectories").names))
    writer.write(1, [trajectory("b", reward=0.5, images=[IMAGE]).row(), trajectory("c").row()])
    writer.finish()
    return folder


def test_a_part_is_written_with_all_columns_whether_its_rows_need_them_or_not(tmp_path: Path) -> None:
    folder = shard(tmp_path)
    earlier, today = (pq.read_schema(folder / f"part-0000{number}.parquet").names for number in (0, 1))
    assert set(today) - set(earlier) == {"reward", "images", "places", "calls", "screens", "image_spans"}


def test_places_are_null_where_the_environment_names_none(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, "trajectories", Origin(config="c", inputs={}, seed=0))
    writer.write(0, [trajectory("a").row()])
    writer.write(1, [trajectory("b", steps=[step(), step()], places=["aa", None]).row()])
    writer.finish()
    assert [row["places"] for row in read_rows(tmp_path, "trajectories")] == [None, ["aa", None]]


def test_bytes_come_back_and_a_part_without_the_column_reads_as_null(tmp_path: Path) -> None:
    rows = {row["trajectory_id"]: row for row in read_rows(shard(tmp_path), "trajectories")}
    assert [rows[name]["reward"] for name in "abc"] == [None, 0.5, None]
    assert [rows[name]["images"] for name in "ac"] == [None, None]
    (image,) = rows["b"]["images"]
    assert (image["digest"], image["png"], image["shown"]) == (IMAGE.digest, IMAGE.png, IMAGE.shown)


def test_an_optional_column_may_be_asked_for_by_name(tmp_path: Path) -> None:
    names = ["trajectory_id", "reward"]
    expected = [("a", None), ("b", 0.5), ("c", None)]
    folder = shard(tmp_path)
    for rows in (read_rows(folder, "trajectories", names), list(stream_rows(folder, "trajectories", names))):
        assert [(row["trajectory_id"], row["reward"]) for row in rows] == expected
