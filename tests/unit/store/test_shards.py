"""Shard folders: whole or absent, refused when they belong to something else, readable by other programs."""

import errno
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pytest

from rla.errors import UserError
from rla.store.manifest import MANIFEST, STARTED, digest, read_json
from rla.store.reading import check_parts, read_manifest, read_rows
from rla.store.shards import Origin, Output, ShardWriter, write_shard, write_shards
from tests.unit.builders import score, task, trajectory
from tests.unit.store.shard_damage import edit_record

ORIGIN = Origin(config="c1", inputs={"0": "d1"}, seed=0)


def tasks_shard(folder: Path) -> Path:
    write_shard(folder, "tasks", [task("t1").row(), task("t2").row()], ORIGIN)
    return folder


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [trajectory("a").row(), trajectory("b", outcome=-1, stop_reason="max_steps").row()]
    write_shard(tmp_path / "x", "trajectories", rows, ORIGIN)
    expected = json.loads(json.dumps(rows))  # tuples become lists on disk
    absent = {
        "reward": None,
        "images": None,
        "places": None,
        "screens": None,
        "image_spans": None,
    }  # optional, and without a value here
    assert [row | absent for row in read_rows(tmp_path / "x", "trajectories")] == expected


def test_other_programs_read_a_shard_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "scores"
    write_shard(folder, "scores", [score("a").row(), score("b", votes=(None, None)).row()], ORIGIN)
    pattern = str(folder / "part-*.parquet")
    assert pl.read_parquet(pattern)["mean_score"].to_list() == [pytest.approx(1 / 3), None]
    assert len(pd.read_parquet(folder / "part-00000.parquet")) == 2
    votes = duckdb.sql(f"select count(*) from (select unnest(judgements) from '{pattern}')").fetchall()
    assert votes == [(5,)]


def test_datasets_reads_a_shard(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    folder = tasks_shard(tmp_path / "tasks")
    loaded = datasets.load_dataset(
        "parquet", data_files=str(folder / "*.parquet"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert loaded["task_id"][:] == ["t1", "t2"]


def test_an_interrupted_shard_keeps_its_parts_and_is_not_readable(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path / "x", "tasks", ORIGIN)
    writer.write(3, [task("t3").row()])
    with pytest.raises(UserError, match="incomplete"):
        read_rows(tmp_path / "x", "tasks")
    again = ShardWriter(tmp_path / "x", "tasks", ORIGIN)
    assert again.done == {3} and not again.complete
    again.write(0, [task("t0").row()])
    again.finish()
    assert [row["task_id"] for row in read_rows(tmp_path / "x", "tasks")] == ["t0", "t3"]


def test_a_folder_of_other_settings_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    folder = tasks_shard(tmp_path / "x")
    before = digest(folder)
    other = Origin(config="c2", inputs={"0": "d1"}, seed=0)
    with pytest.raises(
        UserError, match=r"made with another config_digest \(c1, this call has c2\); rerun with --overwrite"
    ):
        ShardWriter(folder, "tasks", other)
    assert digest(folder) == before


def test_a_refusal_names_parameters_and_inputs(tmp_path: Path) -> None:
    old = replace(ORIGIN, parameters={"seed": 0, "rollout": {"rollouts_per_task": 8, "fill": "tasks"}})
    writer = ShardWriter(tmp_path / "x", "tasks", old)
    writer.finish()
    now = {"seed": 0, "rollout": {"rollouts_per_task": 4, "fill": "tasks"}}
    other = Origin(
        config="c2", inputs={"0": "d2", "1": "d3"}, seed=0, parameters=now, folders={"0": "r/0/pool", "1": "p"}
    )
    said = (
        r"x: made with rollout\.rollouts_per_task 8, this call has 4; made from another r/0/pool than lies there now; "
        r"made without p; rerun with --overwrite or choose another folder"
    )
    with pytest.raises(UserError, match=said):
        ShardWriter(tmp_path / "x", "tasks", other)


def test_a_shard_of_another_version_is_refused_or_made_anew(tmp_path: Path) -> None:
    tasks_shard(tmp_path / "x")
    edit_record(tmp_path / "x" / MANIFEST, lambda found: found | {"versions": {"rla": "0.0.9"}})
    for call in (lambda: read_rows(tmp_path / "x", "tasks"), lambda: ShardWriter(tmp_path / "x", "tasks", ORIGIN)):
        with pytest.raises(UserError, match=r'_manifest\.parquet: written by version "0\.0\.9" of rla, and this is'):
            call()
    assert not ShardWriter(tmp_path / "x", "tasks", ORIGIN, overwrite=True).complete


def test_records_hold_the_parameters(tmp_path: Path) -> None:
    origin = replace(ORIGIN, parameters={"seed": 0, "env": {"name": "e"}})
    writer = ShardWriter(tmp_path / "x", "tasks", origin)
    writer.begin()
    assert read_json(tmp_path / "x" / STARTED)["parameters"] == origin.parameters
    writer.finish()
    assert read_manifest(tmp_path / "x")["parameters"] == origin.parameters


def test_overwrite_keeps_what_the_same_settings_have_made(tmp_path: Path) -> None:
    folder = tasks_shard(tmp_path / "x")
    assert ShardWriter(folder, "tasks", ORIGIN, overwrite=True).complete
    begun = ShardWriter(tmp_path / "y", "tasks", ORIGIN)
    begun.write(4, [task("t4").row()])
    assert ShardWriter(tmp_path / "y", "tasks", ORIGIN, overwrite=True).done == {4}


def test_foreign_parquet_files_are_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "x" / "mine.parquet")
    with pytest.raises(UserError, match="unknown origin"):
        ShardWriter(tmp_path / "x", "tasks", ORIGIN)


def test_a_truncated_part_is_named(tmp_path: Path) -> None:
    folder = tasks_shard(tmp_path / "x")
    part = folder / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"part-00000.parquet: \d+ bytes, _manifest.parquet says"):
        read_rows(folder, "tasks")
    write_shard(folder, "tasks", [task("t1").row()], ORIGIN, overwrite=True)  # the remedy that the message names
    assert len(read_rows(folder, "tasks")) == 1


def test_a_part_of_the_right_size_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    folder = tasks_shard(tmp_path / "x")
    part = folder / "part-00000.parquet"
    part.write_bytes(b"\0" * part.stat().st_size)
    with pytest.raises(UserError, match=r"part-00000.parquet: not the part that _manifest.parquet names"):
        read_rows(folder, "tasks")


def test_a_shard_of_another_schema_version_is_refused(tmp_path: Path) -> None:
    folder = tasks_shard(tmp_path / "x")
    edit_record(folder / MANIFEST, lambda manifest: manifest | {"schema_version": 99})
    with pytest.raises(UserError, match="schema version 99, this program reads version 1"):
        read_rows(folder, "tasks")


def test_a_shard_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="of kind 'tasks'; expected 'scores'"):
        read_rows(tasks_shard(tmp_path / "x"), "scores")


def test_a_manifest_that_does_not_match_is_refused(tmp_path: Path) -> None:
    folder = tasks_shard(tmp_path / "x")
    manifest = read_manifest(folder)
    manifest["parts"].append({"name": "part-00001.parquet", "rows": 0, "bytes": 5})
    with pytest.raises(UserError, match=r"no bytes, _manifest\.parquet says 5"):
        check_parts(folder, manifest)
    (folder / MANIFEST).write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        read_manifest(folder)


def test_a_part_that_the_system_does_not_read_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be whole: a full table of open files, a server that is away."""
    folder = tasks_shard(tmp_path / "tasks")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def refused(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(hashlib, "file_digest", refused)
    with pytest.raises(UserError, match=r"cannot be read \(Input/output error\); mend that and call again"):
        ShardWriter(folder, "tasks", ORIGIN, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_shards_that_are_refused_together_begin_none(tmp_path: Path) -> None:
    tasks_shard(tmp_path / "second")
    outputs = [Output(folder=tmp_path / name, kind="tasks", rows=[task("t1").row()]) for name in ("first", "second")]
    with pytest.raises(UserError, match="second: made with another config_digest"):
        write_shards(outputs, replace(ORIGIN, config="c2"))
    assert not (tmp_path / "first").exists()
    write_shards(outputs[:1], ORIGIN)
