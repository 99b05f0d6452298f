"""Several calls and readers in one shard folder at the same time: nobody loses a part or reads a mixture."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rla.errors import UserError
from rla.store.reading import part_rows, read_manifest, read_part, stream_rows
from rla.store.shards import ShardWriter
from tests.unit.store.shard_damage import OTHER, OURS, contents_of, grow, names_of, rows_of


def test_a_disk_that_is_full_at_the_first_part_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(tmp_path / "x", OTHER)
    before = contents_of(tmp_path / "x")
    writer = ShardWriter(tmp_path / "x", "tasks", OURS, overwrite=True)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rla.store.shards.write_part", full)
    with pytest.raises(UserError, match="cannot be written"):
        writer.write(0, rows_of(OURS, 0))
    assert contents_of(tmp_path / "x") == before


def test_a_stream_ends_where_another_shard_takes_the_place(tmp_path: Path) -> None:
    grow(tmp_path / "x", OTHER)
    stream = stream_rows(tmp_path / "x", "tasks", ["task_id"])
    assert next(stream)["task_id"] == names_of(OTHER)[0]
    grow(tmp_path / "x", OURS, overwrite=True)
    with pytest.raises(
        UserError,
        match=r"part-00001\.parquet: not the part .* if another call has replaced the shard meanwhile, call this one",
    ):
        list(stream)


@pytest.mark.parametrize("read", [read_part, lambda *given, **entry: list(part_rows(*given, **entry))])
@pytest.mark.parametrize("change", [lambda folder: grow(folder, OURS, overwrite=True), lambda folder: None])
def test_a_part_is_the_one_of_the_manifest_that_was_read(
    tmp_path: Path, read: Callable[..., Any], change: Callable[[Path], object]
) -> None:
    grow(tmp_path / "x", OTHER)
    entry = read_manifest(tmp_path / "x")["parts"][1]
    path = tmp_path / "x" / entry["name"]
    assert len(read(path, ["task_id"], entry=entry)) == 2
    if change(tmp_path / "x") is None:
        path.unlink()
    with pytest.raises(UserError, match=r"not the part that _manifest\.parquet names"):
        read(path, ["task_id"], entry=entry)


def test_a_file_that_somebody_has_put_there_meanwhile_stays(tmp_path: Path) -> None:
    grow(tmp_path / "x", OTHER)
    writer = ShardWriter(tmp_path / "x", "tasks", OURS, overwrite=True)
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "x/part-00077.parquet")
    before = contents_of(tmp_path / "x")
    with pytest.raises(UserError, match=r"holds what rla did not write \(part-00077\.parquet\)"):
        writer.write(0, rows_of(OURS, 0))
    assert contents_of(tmp_path / "x") == before
