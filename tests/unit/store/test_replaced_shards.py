"""What is replaced stays until there is something to put in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.errors import UserError
from rla.store.atomic import Slice
from rla.store.manifest import STARTED, Origin
from rla.store.reading import read_manifest, read_rows
from rla.store.shards import ShardWriter
from tests.unit.store.shard_damage import OTHER, OURS, contents_of, grow, names_of, rows_of, slice_of_two, worker_of_two

STARTS = Slice(index=0, count=2)


def started(folder: Path) -> list[ShardWriter]:
    """Both slices of a call with two workers and `--overwrite`."""
    ShardWriter(folder, "tasks", OURS, part=STARTS, overwrite=True)
    return [ShardWriter(folder, "tasks", OURS, part=worker_of_two(index), overwrite=True) for index in (1, 2)]


def played(folder: Path) -> list[str]:
    return [row["task_id"] for row in read_rows(folder, "tasks")]


@pytest.mark.parametrize("groups", [2, 4])
def test_a_call_without_a_part_leaves_the_folder_as_it_was(tmp_path: Path, groups: int) -> None:
    grow(tmp_path / "x", OTHER, groups=groups)
    before = contents_of(tmp_path / "x")
    assert not ShardWriter(tmp_path / "x", "tasks", OURS, overwrite=True).done
    assert contents_of(tmp_path / "x") == before


def test_the_first_part_takes_the_place_of_all(tmp_path: Path) -> None:
    grow(tmp_path / "x", OTHER)
    grow(tmp_path / "x", OURS, groups=1, overwrite=True)
    assert contents_of(tmp_path / "x").keys() == {STARTED, "part-00000.parquet"}
    with pytest.raises(UserError, match="incomplete"):
        read_rows(tmp_path / "x", "tasks")
    grow(tmp_path / "x", OURS)  # goes on without --overwrite
    assert played(tmp_path / "x") == names_of(OURS)


def test_a_shard_without_rows_takes_the_place_when_it_is_finished(tmp_path: Path) -> None:
    grow(tmp_path / "x", OTHER)
    ShardWriter(tmp_path / "x", "tasks", OURS, overwrite=True).finish()
    assert played(tmp_path / "x") == []


def test_slices_of_one_call_leave_the_shard_until_one_has_a_part(tmp_path: Path) -> None:
    grow(tmp_path / "x", OTHER)
    with pytest.raises(UserError, match="made with another config_digest"):
        ShardWriter(tmp_path / "x", "tasks", OURS, part=slice_of_two(1))
    first, second = started(tmp_path / "x")
    assert played(tmp_path / "x") == names_of(OTHER)
    assert ShardWriter(tmp_path / "x", "tasks", OTHER).complete  # what was there may be called again
    for group in (0, 2):
        first.write(group, rows_of(OURS, group))
    first.finish({"tasks": 4})
    for group in (1, 3):
        second.write(group, rows_of(OURS, group))
    second.finish({"tasks": 4})
    assert played(tmp_path / "x") == names_of(OURS) and read_manifest(tmp_path / "x")["counts"] == {"tasks": 8}


@pytest.mark.parametrize("groups", [2, 4])
def test_a_call_whose_slices_fail_leaves_the_folder_as_it_was(tmp_path: Path, groups: int) -> None:
    grow(tmp_path / "x", OTHER, groups=groups)
    before = contents_of(tmp_path / "x")
    started(tmp_path / "x")
    assert contents_of(tmp_path / "x") == before
    with pytest.raises(UserError, match="made with another config_digest"):
        ShardWriter(tmp_path / "x", "tasks", OURS, part=slice_of_two(1))


def test_manifests_of_slices_of_the_old_shard_go_with_it(tmp_path: Path) -> None:
    for index in (1, 2):
        grow(tmp_path / "x", OTHER, part=slice_of_two(index))
    first, _ = started(tmp_path / "x")
    first.write(0, rows_of(OURS, 0))
    assert contents_of(tmp_path / "x").keys() == {STARTED, "part-00000.parquet"}


def test_one_line_says_how_many_parts_are_replaced(tmp_path: Path) -> None:
    grow(tmp_path / "x", OTHER)
    said: list[str] = []
    ShardWriter(tmp_path / "x", "tasks", OURS, overwrite=True, tell=said.append).write(0, rows_of(OURS, 0))
    assert said == [f"{tmp_path / 'x'}: replaces 4 parts of another origin"]


def test_a_slice_that_nobody_started_replaces_no_shard(tmp_path: Path) -> None:
    grow(tmp_path / "x", OTHER)
    with pytest.raises(UserError, match="a slice does not replace a folder that others may be writing to"):
        ShardWriter(tmp_path / "x", "tasks", OURS, part=slice_of_two(1), overwrite=True)
    assert played(tmp_path / "x") == names_of(OTHER)


def test_a_slice_does_not_undo_the_shard_that_others_complete_meanwhile(tmp_path: Path) -> None:
    grow(tmp_path / "x", OURS, groups=3)
    slow = ShardWriter(tmp_path / "x", "tasks", OURS, part=slice_of_two(2))
    grow(tmp_path / "x", OURS)
    for late in (lambda: slow.write(3, rows_of(OURS, 3)), slow.finish):
        with pytest.raises(UserError, match="another call has completed or replaced it meanwhile"):
            late()
    assert played(tmp_path / "x") == names_of(OURS)


@pytest.mark.parametrize("origin", [OTHER, OURS])
def test_a_slice_writes_into_no_shard_that_has_taken_the_place(origin: Origin, tmp_path: Path) -> None:
    slow = ShardWriter(tmp_path / "x", "tasks", OURS, part=slice_of_two(2))
    slow.write(1, rows_of(OURS, 1))
    grow(tmp_path / "x", origin, overwrite=True)
    before = contents_of(tmp_path / "x")
    for late in (lambda: slow.write(3, rows_of(OURS, 3)), slow.finish):
        with pytest.raises(UserError, match="another call has completed or replaced it meanwhile"):
            late()
    assert contents_of(tmp_path / "x") == before


def test_a_shard_that_was_completed_meanwhile_is_not_replaced_unseen(tmp_path: Path) -> None:
    late = ShardWriter(tmp_path / "x", "tasks", OURS, overwrite=True)
    grow(tmp_path / "x", OTHER)
    before = contents_of(tmp_path / "x")
    with pytest.raises(UserError, match="another call has completed or replaced it"):
        late.write(0, rows_of(OURS, 0))
    assert contents_of(tmp_path / "x") == before
