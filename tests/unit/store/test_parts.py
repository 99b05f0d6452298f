"""Parts that are damaged, foreign or half written are noticed before anything is read from them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rla.errors import UserError
from rla.store.manifest import MANIFEST
from rla.store.reading import read_rows, stream_rows
from rla.store.shards import ShardWriter, write_shard
from tests.unit.builders import trajectory
from tests.unit.store.shard_damage import (
    GROUPS,
    OTHER,
    OURS,
    contents_of,
    flip,
    grow,
    names_of,
    rows_of,
    slice_of_two,
)


def ids(folder: Path) -> list[str]:
    return [row["task_id"] for row in read_rows(folder, "tasks")]


def test_of_200_flipped_bits_none_changes_what_is_read(tmp_path: Path) -> None:
    played = [trajectory(f"a{number}", reward=0.5, error="x" * number).row() for number in range(3)]
    write_shard(tmp_path / "x", "trajectories", played, OURS)
    before, moments = read_rows(tmp_path / "x", "trajectories"), random.Random(19)
    noticed = 0
    for number in range(200):
        path = tmp_path / "x" / (MANIFEST if number % 4 == 0 else "part-00000.parquet")
        whole = path.read_bytes()
        flip(path, moments.randrange(len(whole)), moments.randrange(8))
        try:
            assert read_rows(tmp_path / "x", "trajectories") == before
        except UserError:
            noticed += 1
        path.write_bytes(whole)
    assert noticed > 120  # the rest fell where nothing is read, such as statistics


@pytest.mark.parametrize("name", [MANIFEST, "part-00002.parquet"])
def test_a_flipped_bit_is_mended_by_overwrite_and_the_other_parts_stay(name: str, tmp_path: Path) -> None:
    grow(tmp_path / "x")
    before = contents_of(tmp_path / "x")
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "x").glob("part-*")}
    flip(tmp_path / "x" / name, 200)
    with pytest.raises(UserError, match=rf"{name}.* --overwrite"):
        grow(tmp_path / "x")
    grow(tmp_path / "x", overwrite=True)
    assert contents_of(tmp_path / "x") == before
    made = {path.name for path in (tmp_path / "x").glob("part-*") if path.stat().st_mtime_ns != times[path.name]}
    assert made == {name} - {MANIFEST}


@pytest.mark.parametrize("kept", [0, 1, 100, -1])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_truncated_part_of_an_unfinished_shard_is_made_again(kept: int, overwrite: bool, tmp_path: Path) -> None:
    grow(tmp_path / "calm")
    grow(tmp_path / "x", groups=3)
    part = tmp_path / "x/part-00001.parquet"
    part.write_bytes(part.read_bytes()[:kept])
    said: list[str] = []
    assert ShardWriter(tmp_path / "x", "tasks", OURS, overwrite=overwrite).done == {0, 2}
    grow(tmp_path / "x", overwrite=overwrite, tell=said.append)
    assert len(said) == 1 and "part-00001.parquet: not a readable Parquet file" in said[0] and "made again" in said[0]
    assert contents_of(tmp_path / "x") == contents_of(tmp_path / "calm")


def test_a_page_that_was_damaged_before_the_shard_was_finished_is_made_again(tmp_path: Path) -> None:
    grow(tmp_path / "calm")
    grow(tmp_path / "x", groups=3)
    flip(tmp_path / "x/part-00001.parquet", 60)
    assert ShardWriter(tmp_path / "x", "tasks", OURS).done == {0, 2}
    grow(tmp_path / "x")
    assert contents_of(tmp_path / "x") == contents_of(tmp_path / "calm")


@pytest.mark.parametrize("name", ["part-00001.parquet", "part-00099.parquet"])
def test_a_copied_part_of_the_same_shard_is_refused_and_removed_on_demand(name: str, tmp_path: Path) -> None:
    grow(tmp_path / "calm")
    grow(tmp_path / "x", groups=3)
    shutil.copy(tmp_path / "x/part-00002.parquet", tmp_path / "x" / name)
    with pytest.raises(UserError, match=rf"{name}: a part of another group; remove it, or call .* --overwrite"):
        ShardWriter(tmp_path / "x", "tasks", OURS)
    grow(tmp_path / "x", overwrite=True)
    assert ids(tmp_path / "x") == names_of(OURS)
    assert contents_of(tmp_path / "x") == contents_of(tmp_path / "calm")


@pytest.mark.parametrize("part", [{}, {"part": slice_of_two(2)}])
def test_a_part_of_another_origin_is_refused_before_a_slice_goes_on(part: dict[str, object], tmp_path: Path) -> None:
    grow(tmp_path / "other", OTHER)
    grow(tmp_path / "x", groups=1, **part)
    shutil.copy(tmp_path / "other/part-00001.parquet", tmp_path / "x")
    with pytest.raises(UserError, match=r"part-00001\.parquet: a part of another origin"):
        grow(tmp_path / "x", **part)


def test_a_part_that_appears_while_the_shard_is_made_is_not_taken_in(tmp_path: Path) -> None:
    grow(tmp_path / "other", OTHER)
    writer = ShardWriter(tmp_path / "x", "tasks", OURS)
    for group in range(GROUPS):
        writer.write(group, rows_of(OURS, group))
    for name in ("part-00003.parquet", "part-00099.parquet"):
        kept = contents_of(tmp_path / "x").get(name)
        shutil.copy(tmp_path / "other/part-00003.parquet", tmp_path / "x" / name)
        with pytest.raises(UserError, match=rf"{name}: (not the part|\d+ bytes, _manifest.parquet says nothing)"):
            writer.finish()
        assert not (tmp_path / "x" / MANIFEST).exists()
        (tmp_path / "x" / name).unlink()
        if kept:
            (tmp_path / "x" / name).write_bytes(kept)
    writer.finish()
    assert ids(tmp_path / "x") == names_of(OURS)


def test_a_part_of_another_shard_of_the_same_size_is_not_read(tmp_path: Path) -> None:
    for name, origin in (("x", OURS), ("other", OTHER)):
        grow(tmp_path / name, origin)
    shutil.copy(tmp_path / "other/part-00001.parquet", tmp_path / "x")
    with pytest.raises(UserError, match=r"part-00001\.parquet: (\d+ bytes|not the part that _manifest\.parquet names)"):
        list(stream_rows(tmp_path / "x", "tasks", ["task_id"]))


def test_slices_that_were_damaged_on_their_way_are_not_joined(tmp_path: Path) -> None:
    for index in (1, 2):
        grow(tmp_path / str(index), part=slice_of_two(index))
        shutil.copytree(tmp_path / str(index), tmp_path / "all", dirs_exist_ok=True)
    flip(tmp_path / "all/part-00001.parquet", 60)
    with pytest.raises(UserError, match=r"part-00001\.parquet: not the part .* its sha256 differs"):
        grow(tmp_path / "all", part=slice_of_two(1))
    grow(tmp_path / "all", part=slice_of_two(2))  # the slice that it belongs to makes it again
    assert ids(tmp_path / "all") == names_of(OURS)


def test_a_changed_count_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    grow(tmp_path / "x")
    place = tmp_path / "x" / MANIFEST
    place.write_bytes(place.read_bytes().replace(b'"tasks": 8', b'"tasks": 9'))
    with pytest.raises(UserError, match=r"_manifest\.parquet: changed since it was written"):
        ids(tmp_path / "x")


def test_two_shards_of_one_origin_are_equal_byte_by_byte(tmp_path: Path) -> None:
    for name in ("x", "y"):
        grow(tmp_path / name)
    assert contents_of(tmp_path / "x") == contents_of(tmp_path / "y")
    metadata = pq.read_metadata(tmp_path / "x/part-00002.parquet").metadata
    assert metadata[b"rla_group"] == b"2" and len(metadata[b"rla_origin"]) == 16


@pytest.mark.parametrize("groups", [3, 5])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_the_name_of_a_part_is_named(groups: int, overwrite: bool, tmp_path: Path) -> None:
    grow(tmp_path / "x", groups=groups)
    (tmp_path / "x/part-00007.parquet").mkdir()
    with pytest.raises(UserError, match=r"x/part-00007\.parquet: a folder with the name of a part.*move it away"):
        ShardWriter(tmp_path / "x", "tasks", OURS, overwrite=overwrite)
    if (tmp_path / "x" / MANIFEST).exists():
        with pytest.raises(UserError, match="a folder with the name of a part"):
            read_rows(tmp_path / "x", "tasks")
