"""A finished shard folder is a data set for every reader of Parquet, and `rla.store.read` finds it by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import rla.store
from rla.errors import UserError
from rla.store.atomic import WHOLE, Slice
from rla.store.layout import PATHS, SHARD_KINDS
from rla.store.records import ShownImage
from rla.store.schema import load_schema
from rla.store.shards import Origin, ShardWriter, write_shard
from tests.unit.builders import step, trajectory
from tests.unit.store.shard_damage import flip

ORIGIN = Origin(config="c", inputs={}, seed=0)
IMAGE = ShownImage(digest="ab" * 32, png=b"\x89PNG\x00\xff", shown=[{"observation": 0, "position": 0}])
GROUPS: list[list[dict[str, Any]]] = [  # one without rows, one without a value in an optional column, one without steps
    [],
    [trajectory("a").row(), trajectory("b").row()],
    [trajectory("c", steps=[], segments=[]).row()],
    [trajectory("d", reward=0.5, error="x", places=["aa"], images=[IMAGE]).row()],
    [trajectory("e", steps=[step(), step()], places=["aa", None]).row()],
]
STEPS = {"a": 1, "b": 1, "c": 0, "d": 1, "e": 2}


def shard(folder: Path, parts: list[Slice]) -> Path:
    for part in parts:
        writer = ShardWriter(folder, "trajectories", ORIGIN, part=part)
        for group, rows in enumerate(GROUPS):
            if part.takes(group):
                writer.write(group, rows)
        writer.finish()
    return folder


def with_polars(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder)


def with_polars_lazily(folder: Path) -> pl.DataFrame:
    return pl.scan_parquet(folder).filter(pl.col("seed") == 7).collect(engine="streaming")


def with_pandas(folder: Path) -> pl.DataFrame:
    pandas = pytest.importorskip("pandas")
    return pl.from_pandas(pandas.read_parquet(folder)[["trajectory_id", "reward", "steps"]])


def with_pyarrow(folder: Path) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(pyarrow.dataset.dataset(folder).to_table()))


def with_one_table(folder: Path) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(pq.read_table(folder)))


def with_datasets(folder: Path) -> pl.DataFrame:
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset(str(folder), cache_dir=str(folder.parent / "cache"))
    assert set(loaded) == {"train"}
    return pl.DataFrame(loaded["train"].to_polars())


def with_a_stream_of_datasets(folder: Path) -> pl.DataFrame:
    datasets = pytest.importorskip("datasets")
    rows = datasets.load_dataset(str(folder), streaming=True)["train"].select_columns(
        ["trajectory_id", "reward", "steps"]
    )
    return pl.DataFrame(list(rows))


def with_duckdb(folder: Path) -> pl.DataFrame:
    duckdb = pytest.importorskip("duckdb")
    return pl.DataFrame(pl.from_arrow(duckdb.sql(f"select * from '{folder}/*.parquet'").to_arrow_table()))


READERS = [
    with_polars,
    with_polars_lazily,
    with_pandas,
    with_pyarrow,
    with_one_table,
    with_datasets,
    with_a_stream_of_datasets,
    with_duckdb,
]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_opens_a_shard_folder_as_it_is(
    reader: Callable[[Path], pl.DataFrame], count: int, tmp_path: Path
) -> None:
    """Whole, and made in slices whose records stay."""
    parts = [Slice(index=index, count=count) for index in range(1, count + 1)]
    rows = reader(shard(tmp_path / "x", parts)).sort("trajectory_id")
    assert dict(zip(rows["trajectory_id"], rows["steps"].list.len(), strict=True)) == STEPS
    assert rows["reward"].fill_nan(None).to_list() == [None, None, None, 0.5, None]


@pytest.mark.parametrize("kind", sorted(set(SHARD_KINDS.values())))
def test_a_folder_without_rows_has_the_columns_of_its_kind(kind: str, tmp_path: Path) -> None:
    write_shard(tmp_path / "x", kind, [], ORIGIN)
    assert pl.read_parquet(tmp_path / "x").columns == list(load_schema(kind)["properties"])


def test_read_finds_a_shard_of_a_run_by_name(tmp_path: Path) -> None:
    for name in ("trajectories", "eval_trajectories"):
        shard(tmp_path / PATHS[name].format(i=3), [WHOLE])
    rows = rla.store.read("trajectories", tmp_path, 3)
    assert rows["trajectory_id"].to_list() == list(STEPS)
    assert rows.schema["steps"] == pl.read_parquet(tmp_path / "3/trajectories").schema["steps"]
    two = rla.store.read("eval_trajectories", str(tmp_path), 3, columns=["outcome", "trajectory_id"])
    assert two.columns == ["outcome", "trajectory_id"] and two.height == 5


def test_read_names_what_there_is_where_a_name_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'episodes': no shard of a run; choose one of .*trajectories, scores"):
        rla.store.read("episodes", tmp_path, 1)
    with pytest.raises(UserError, match="trajectories have no column won; choose of trajectory_id, "):
        rla.store.read("trajectories", tmp_path, 1, columns=["won"])
    with pytest.raises(UserError, match="1/trajectories does not exist"):
        rla.store.read("trajectories", tmp_path, 1)


def test_read_refuses_a_damaged_shard(tmp_path: Path) -> None:
    folder = shard(tmp_path / "1/trajectories", [WHOLE])
    flip(folder / "part-00000.parquet", -20)
    with pytest.raises(UserError, match=r"part-00000\.parquet: not the part"):
        rla.store.read("trajectories", tmp_path, 1)
