"""`--overwrite` removes what `rla` wrote, and nothing else."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pandas as pd
import pytest

from rla.errors import UserError
from rla.store.manifest import MANIFEST, STARTED
from rla.store.reading import read_manifest, read_rows
from rla.store.shards import Output, ShardWriter, write_shard, write_shards
from tests.unit.builders import task
from tests.unit.store.shard_damage import GROUPS, OTHER, OURS, contents_of, flip, grow, names_of


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def own_work(folder: Path) -> None:
    (folder / "data").mkdir(parents=True)
    (folder / "thesis.md").write_text("years of work")
    (folder / "data/a.csv").write_text("1,2")


def own_parquet(folder: Path) -> None:
    own_work(folder)
    pd.DataFrame({"a": [1]}).to_parquet(folder / "mine.parquet")


def own_parts(folder: Path) -> None:
    """As Spark and others name their files."""
    folder.mkdir()
    pd.DataFrame({"a": [1]}).to_parquet(folder / "part-00000.parquet")


def broken_parts(folder: Path) -> None:
    folder.mkdir()
    (folder / "part-00000.parquet").write_bytes(b"PAR1 half of a file")


def beside_ours(folder: Path) -> None:
    grow(folder, OTHER)
    own_work(folder)


def parts_beside_ours(folder: Path) -> None:
    grow(folder, OTHER)
    pd.DataFrame({"a": [1]}).to_parquet(folder / "part-00099.parquet")


def manifest_of_others(folder: Path) -> None:
    """Of a web application."""
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps({"name": "my app", "kind": "pwa"}))


def beside_a_damaged_record(folder: Path) -> None:
    beside_ours(folder)
    flip(folder / MANIFEST, 100)


MADE = [own_parquet, own_parts, broken_parts, beside_ours, parts_beside_ours, manifest_of_others]


@pytest.mark.parametrize("make", [*MADE, beside_a_damaged_record])
def test_a_folder_that_holds_anything_else_is_left_as_it_is(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "precious")
    before = everything(tmp_path / "precious")
    with pytest.raises(UserError, match=r"precious: holds what rla did not write \(.*move that away, or choose"):
        ShardWriter(tmp_path / "precious", "tasks", OURS, overwrite=True)
    assert everything(tmp_path / "precious") == before


def test_own_files_of_another_origin_are_replaced(tmp_path: Path) -> None:
    grow(tmp_path / "calm")
    grow(tmp_path / "x", OTHER)
    (tmp_path / "x/.part-00007.parquet.tmp").write_text("of a call that was killed")
    grow(tmp_path / "x", overwrite=True)
    assert contents_of(tmp_path / "x") == contents_of(tmp_path / "calm")


def test_a_link_in_the_place_of_a_file_that_is_being_written_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "x").mkdir()
    (tmp_path / "x/.part-00001.parquet.tmp").symlink_to(tmp_path / "thesis.txt")
    grow(tmp_path / "x")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    assert not (tmp_path / "x/part-00001.parquet").is_symlink() and read_manifest(tmp_path / "x")["rows"] == 2 * GROUPS


def test_a_lost_record_is_mended_from_what_the_parts_say(tmp_path: Path) -> None:
    grow(tmp_path / "calm")
    grow(tmp_path / "x", groups=3)
    (tmp_path / "x" / STARTED).unlink()
    with pytest.raises(UserError, match="unknown origin; use --overwrite"):
        ShardWriter(tmp_path / "x", "tasks", OURS)
    assert ShardWriter(tmp_path / "x", "tasks", OURS, overwrite=True).done == {0, 1, 2}
    grow(tmp_path / "x", overwrite=True)
    assert contents_of(tmp_path / "x") == contents_of(tmp_path / "calm")


def test_the_record_of_the_start_leaves_with_the_next_call_where_a_kill_has_left_it(tmp_path: Path) -> None:
    grow(tmp_path / "x", groups=1)
    left = (tmp_path / "x" / STARTED).read_bytes()
    grow(tmp_path / "x")
    (tmp_path / "x" / STARTED).write_bytes(left)
    (tmp_path / "x/.part-00003.parquet.tmp").write_text("half")
    assert ShardWriter(tmp_path / "x", "tasks", OURS).complete
    assert sorted(contents_of(tmp_path / "x")) == [
        MANIFEST,
        *(f"part-0000{group}.parquet" for group in range(GROUPS)),
    ]


def test_of_shards_that_belong_together_none_is_replaced_where_one_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_shard(tmp_path / name, "tasks", [task("old").row()], OTHER)
    (tmp_path / "b/thesis.md").write_text("years of work")
    before = everything(tmp_path)
    outputs = [Output(folder=tmp_path / name, kind="tasks", rows=[task("new").row()]) for name in ("a", "b")]
    with pytest.raises(UserError, match=r"thesis\.md"):
        write_shards(outputs, OURS, overwrite=True)
    assert everything(tmp_path) == before
    (tmp_path / "b/thesis.md").unlink()
    bad = [outputs[0], Output(folder=tmp_path / "b", kind="tasks", rows=[task("new", depth=-1).row()])]
    with pytest.raises(UserError, match=r"tasks\.depth"):
        write_shards(bad, OURS, overwrite=True)
    assert read_rows(tmp_path / "a", "tasks")[0]["task_id"] == "old"
    write_shards(outputs, OURS, overwrite=True)
    assert [read_rows(tmp_path / name, "tasks")[0]["task_id"] for name in ("a", "b")] == ["new", "new"]


def test_where_a_later_shard_cannot_be_written_the_stale_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training stage must not find it beside a new one."""
    for name in ("a", "b"):
        write_shard(tmp_path / name, "tasks", [task("old").row()], OTHER)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rla.store.shards.write_part", full)
    outputs = [Output(folder=tmp_path / name, kind="tasks", rows=[task("new").row()]) for name in ("a", "b")]
    with pytest.raises(UserError, match="cannot be written"):
        write_shards(outputs, OURS, overwrite=True)
    for name in ("a", "b"):
        with pytest.raises(UserError, match="incomplete"):
            read_rows(tmp_path / name, "tasks")


def test_names_in_order_are_those_of_one_origin(tmp_path: Path) -> None:
    grow(tmp_path / "x", OTHER, groups=2)
    grow(tmp_path / "x", OURS, overwrite=True)
    assert [row["task_id"] for row in read_rows(tmp_path / "x", "tasks")] == names_of(OURS)
