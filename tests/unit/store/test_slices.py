"""Slices of a shard: a balanced share each, one manifest at the end, whatever order and moment they finish in."""

import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from rla.errors import UserError
from rla.store.atomic import WHOLE, Slice, slices
from rla.store.manifest import STARTED, digest, read_json
from rla.store.reading import read_manifest, read_rows
from rla.store.shards import Origin, ShardWriter
from tests.unit.builders import task
from tests.unit.store.shard_damage import edit_record, flip

ORIGIN = Origin(config="c1", inputs={"0": "d1"}, seed=0)
GROUPS = 7


def make(folder: Path, part: Slice = WHOLE, *, overwrite: bool = False) -> ShardWriter:
    """Write what the slice has to write; the writer."""
    writer = ShardWriter(folder, "tasks", ORIGIN, part=part, overwrite=overwrite)
    mine = [index for index in range(GROUPS) if part.takes(index) and index not in writer.done]
    if not writer.complete:
        for index in mine:
            writer.write(index, [task(f"t{index}").row()])
        writer.finish({"tasks": len(writer.parts())}, tokenizer="f" * 16)
    return writer


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/4", "1/4/2"])
def test_a_slice_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"expected i/n with 1 <= i <= n, such as 2/4"):
        Slice.parse(text)


def test_shares_are_disjoint_cover_everything_and_differ_by_one_at_most() -> None:
    shares = [[group for group in range(10) if part.takes(group)] for part in slices(4)]
    assert shares == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
    assert [group for group in range(3) if WHOLE.takes(group)] == [0, 1, 2]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_all_slices_together_are_an_undivided_shard(order: tuple[int, ...], tmp_path: Path) -> None:
    make(tmp_path / "whole")
    for index in order:
        make(tmp_path / "sliced", Slice(index=index, count=3))
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "sliced" / path.name).read_bytes(), path.name
    assert digest(tmp_path / "sliced") == digest(tmp_path / "whole")
    assert read_manifest(tmp_path / "sliced")["counts"] == {"tasks": GROUPS}


def test_a_reader_is_told_which_slices_are_missing(tmp_path: Path) -> None:
    make(tmp_path / "x", Slice.parse("2/4"))
    for look in (read_manifest, digest):
        with pytest.raises(UserError, match=r"x is incomplete: no manifest of slices 1/4, 3/4, 4/4; call .* 1/4"):
            look(tmp_path / "x")
    make(tmp_path / "x", Slice.parse("1/4"))
    make(tmp_path / "x", Slice.parse("4/4"))
    with pytest.raises(UserError, match="no manifest of slice 3/4; "):
        read_rows(tmp_path / "x", "tasks")


def test_more_slices_than_groups_leave_some_without_work(tmp_path: Path) -> None:
    for part in slices(GROUPS + 2):
        make(tmp_path / "x", part)
    assert len(read_rows(tmp_path / "x", "tasks")) == GROUPS


def test_folders_of_their_own_are_put_into_one(tmp_path: Path) -> None:
    for part in slices(2):
        make(tmp_path / str(part.index), part)
    for index in (1, 2):
        shutil.copytree(tmp_path / str(index), tmp_path / "all", dirs_exist_ok=True)
    with pytest.raises(UserError, match="its 2 slices are not joined; call the stage that makes it with --slice 1/2"):
        read_rows(tmp_path / "all", "tasks")
    make(tmp_path / "all", Slice.parse("1/2"))
    make(tmp_path / "whole")
    assert digest(tmp_path / "all") == digest(tmp_path / "whole")


def test_a_slice_of_other_settings_is_not_joined(tmp_path: Path) -> None:
    make(tmp_path / "x", Slice.parse("1/2"))
    place = tmp_path / "x/_manifest-1-of-2.parquet"
    edit_record(place, lambda record: record | {"seed": 9})
    with pytest.raises(
        UserError, match=r"_manifest-1-of-2\.parquet: made with seed 9, this call has 0; bring the right one"
    ):
        make(tmp_path / "x", Slice.parse("2/2"))


def test_another_number_of_slices_keeps_the_parts_that_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    make(folder, Slice.parse("1/3"))
    kept = (folder / "part-00003.parquet").stat().st_mtime_ns
    for part in slices(2):
        make(folder, part)
    assert (folder / "part-00003.parquet").stat().st_mtime_ns == kept
    make(tmp_path / "whole")
    assert digest(folder) == digest(tmp_path / "whole")


@pytest.mark.parametrize("damaged", [False, True])
def test_a_slice_that_an_earlier_call_has_ended_may_see_another_one_complete_the_shard(
    damaged: bool, tmp_path: Path
) -> None:
    first, second = slices(2)
    make(tmp_path / "x", first)
    if damaged:
        flip(tmp_path / "x/part-00000.parquet", 60)
    again = ShardWriter(tmp_path / "x", "tasks", ORIGIN, part=first)
    if damaged:
        again.write(0, [task("t0").row()])
    assert make(tmp_path / "x", second).complete
    again.finish({"tasks": 4}, tokenizer="f" * 16)
    make(tmp_path / "whole")
    assert again.complete and digest(tmp_path / "x") == digest(tmp_path / "whole")


def test_a_slice_does_not_join_parts_that_another_one_is_to_make_again(tmp_path: Path) -> None:
    workers = [Slice(index=index, count=2, started=True) for index in (1, 2)]
    for part in workers:
        make(tmp_path / "x", part)
    flip(tmp_path / "x/part-00000.parquet", 60)
    for part in reversed(workers):  # the second one has nothing left to write
        assert make(tmp_path / "x", part, overwrite=True).complete == (part.index == 1)
    make(tmp_path / "whole")
    assert digest(tmp_path / "x") == digest(tmp_path / "whole")


def test_slices_that_start_and_finish_in_the_same_moment(tmp_path: Path) -> None:
    make(tmp_path / "whole")
    together = Barrier(GROUPS)

    def one(part: Slice, folder: Path) -> None:
        together.wait()
        writer = ShardWriter(folder, "tasks", ORIGIN, part=part)
        writer.write(part.index - 1, [task(f"t{part.index - 1}").row()])
        together.wait()
        writer.finish({"tasks": 1}, tokenizer="f" * 16)

    with ThreadPoolExecutor(GROUPS) as pool:
        for number in range(20):
            list(pool.map(one, slices(GROUPS), [tmp_path / f"{number}"] * GROUPS))
            assert digest(tmp_path / f"{number}") == digest(tmp_path / "whole")
            assert not list((tmp_path / f"{number}").glob("*.tmp")) and not (tmp_path / f"{number}" / STARTED).exists()


def test_of_two_first_slices_of_different_settings_one_is_refused(tmp_path: Path) -> None:
    together = Barrier(2)

    def one(part: str, config: str, folder: Path) -> str:
        together.wait()
        try:
            ShardWriter(folder, "tasks", Origin(config=config, inputs={}, seed=0), part=Slice.parse(part)).begin()
        except UserError as error:
            return str(error)
        return config

    with ThreadPoolExecutor(2) as pool:
        for number in range(100):
            folder = tmp_path / str(number)
            said = sorted(pool.map(one, ("1/2", "2/2"), ("a", "b"), (folder, folder)), key=len)
            assert "made with another config_digest" in said[1]
            assert read_json(folder / STARTED)["config_digest"] == said[0]


def test_counts_are_checked_over_the_whole_and_what_is_discarded_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    first, second = (ShardWriter(folder, "tasks", ORIGIN, part=part) for part in slices(2))
    for index, writer in ((0, first), (1, second)):
        writer.write(index, [task(f"t{index}").row()])

    def check(counts: Mapping[str, int]) -> None:
        if counts["failed"] > 1:
            second.discard(folder / "part-00000.parquet")
            raise UserError("too many failed")

    first.finish({"failed": 1}, check=check)
    with pytest.raises(UserError, match="too many failed"):
        second.finish({"failed": 1}, check=check)
    with pytest.raises(UserError, match="no manifest of slice 1/2"):
        read_manifest(folder)
    again = ShardWriter(folder, "tasks", ORIGIN, part=Slice.parse("1/2"))
    assert again.done == set()
    again.write(0, [task("t0").row()])
    again.finish({"failed": 0}, check=check)
    assert len(read_rows(folder, "tasks")) == 2
