"""The `images` shard beside trajectories: never behind them, each picture once, read only if wanted."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from rla.errors import UserError
from rla.pictures.shard import (
    finish_images,
    image_rows,
    images_folder,
    images_of_part,
    refuse_other_images,
    stream_images,
)
from rla.pictures.vision import png_digest, png_size
from rla.rollouts.play import TrajectoryWriter
from rla.store.atomic import WHOLE, Slice
from rla.store.manifest import is_complete
from rla.store.reading import read_rows
from rla.store.records import ShownImage, Trajectory
from rla.store.shards import Origin, ShardWriter
from tests.unit.builders import trajectory
from tests.unit.store.shard_damage import flip

WORKERS = [Slice(index=index, count=2, started=True) for index in (1, 2)]


def png(shade: int, width: int = 3, height: int = 2) -> bytes:
    """A grey picture as the smallest PNG file."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + bytes([shade]) * width for _ in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def shown(shade: int, *observations: int) -> ShownImage:
    file = png(shade)
    places = [{"observation": number, "position": 0} for number in observations]
    return ShownImage(digest=png_digest(file), png=file, shown=places)


def group(index: int) -> list[Trajectory]:
    """Two episodes that begin with the same screen."""
    first = trajectory(f"{index}a", images=[shown(index, 0), shown(100 + index, 1)])
    return [first, trajectory(f"{index}b", images=[shown(index, 0, 1)])]


def opened(folder: Path, *, part: Slice = WHOLE, config: str = "c", overwrite: bool = False) -> TrajectoryWriter:
    """As by a stage whose environment shows pictures."""
    progress, env = SimpleNamespace(note=lambda text: None), SimpleNamespace(name="alfworld")
    ctx: Any = SimpleNamespace(config=SimpleNamespace(env=env), overwrite=overwrite, progress=progress)
    with patch("rla.rollouts.play.shows_images", return_value=True):
        return TrajectoryWriter(ctx, folder, Origin(config=config, inputs={}, seed=0), part=part)


def pictures_of(writer: TrajectoryWriter) -> ShardWriter:
    assert writer.pictures is not None
    return writer.pictures


def made(folder: Path, *, config: str = "c", overwrite: bool = False) -> Path:
    writer = opened(folder, config=config, overwrite=overwrite)
    for index in range(2):
        writer.keep(index, group(index))
    writer.complete_shard()
    return folder


def test_each_distinct_picture_of_a_group_lies_there_once_with_its_size(tmp_path: Path) -> None:
    folder = made(tmp_path / "trajectories")
    rows = read_rows(images_folder(folder), "images")
    assert sorted(row["digest"] for row in rows) == sorted(png_digest(png(shade)) for shade in (0, 100, 1, 101))
    assert {(row["width"], row["height"]) for row in rows} == {(3, 2)}
    assert all(png_digest(row["png"]) == row["digest"] for row in rows)


def test_trajectories_name_the_pictures_of_each_observation_and_hold_no_files(tmp_path: Path) -> None:
    first, second = read_rows(made(tmp_path / "trajectories"), "trajectories")[:2]
    still, other = png_digest(png(0)), png_digest(png(100))
    assert (first["screens"], second["screens"]) == ([[still], [other]], [[still], [still]])
    assert first["images"] is None


def test_readers_that_want_no_pictures_do_without_the_folder(tmp_path: Path) -> None:
    folder = made(tmp_path / "trajectories")
    images_folder(folder).rename(tmp_path / "away")
    assert len(read_rows(folder, "trajectories")) == 4
    with pytest.raises(UserError, match="trajectories-images"):
        images_of_part(folder / "part-00000.parquet", [png_digest(png(0))])


def test_pictures_are_found_by_part_and_over_all_parts(tmp_path: Path) -> None:
    folder = made(tmp_path / "trajectories")
    wanted = [png_digest(png(0)), png_digest(png(101))]
    assert images_of_part(folder / "part-00000.parquet", wanted[:1]) == {wanted[0]: png(0)}
    assert dict(stream_images(images_folder(folder), wanted)) == {wanted[0]: png(0), wanted[1]: png(101)}
    with pytest.raises(UserError, match="1 pictures are missing"):
        dict(stream_images(images_folder(folder), [*wanted, "ff" * 32]))


def test_a_call_that_ends_before_the_trajectories_leaves_no_name_without_a_picture(tmp_path: Path) -> None:
    folder = tmp_path / "trajectories"
    writer = opened(folder)
    writer.keep(0, group(0))
    pictures_of(writer).write(1, image_rows(group(1)))  # killed here: the part of the trajectories is not there
    writer = opened(folder)
    assert (writer.done, pictures_of(writer).done) == ({0}, {0, 1})
    writer.keep(1, group(1))
    writer.complete_shard()
    assert is_complete(folder) and is_complete(images_folder(folder))


def test_a_call_that_ends_between_the_two_manifests_is_carried_on(tmp_path: Path) -> None:
    folder = tmp_path / "trajectories"
    writer = opened(folder)
    for index in range(2):
        writer.keep(index, group(index))
    finish_images(pictures_of(writer), folder)
    writer.part(1).write_bytes(b"torn")
    writer = opened(folder)
    assert writer.done == {0} and pictures_of(writer).complete
    writer.keep(1, group(1))
    writer.complete_shard()
    assert len(read_rows(images_folder(folder), "images")) == 4 and is_complete(folder)


def test_a_torn_part_of_the_pictures_is_made_again_with_its_trajectories(tmp_path: Path) -> None:
    folder = tmp_path / "trajectories"
    opened(folder).keep(0, group(0))
    (images_folder(folder) / "part-00000.parquet").write_bytes(b"torn")
    writer = opened(folder)
    assert writer.done == {0} and not writer.has(0)
    writer.keep(0, group(0))
    writer.complete_shard()
    assert is_complete(folder)


def test_slices_in_any_order_give_what_one_call_gives(tmp_path: Path) -> None:
    whole, cut = made(tmp_path / "whole"), tmp_path / "cut"
    for index in (2, 1):
        writer = opened(cut, part=Slice(index=index, count=2))
        writer.keep(index - 1, group(index - 1))
        writer.complete_shard()
        assert is_complete(images_folder(cut)) is is_complete(cut) is (index == 1)
    for one, other in ((whole, cut), (images_folder(whole), images_folder(cut))):
        for part in sorted(one.glob("*.parquet")):
            assert part.read_bytes() == (other / part.name).read_bytes()


def test_groups_that_failed_take_their_pictures_with_them(tmp_path: Path) -> None:
    writer = opened(tmp_path / "trajectories")
    for index in range(2):
        writer.keep(index, group(index))
    writer.forget(writer.part(0))
    again = opened(tmp_path / "trajectories")
    assert again.done == pictures_of(again).done == {1}


def test_both_folders_are_replaced_together_or_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "trajectories")
    with pytest.raises(UserError, match="--overwrite"):
        opened(folder, config="d")
    made(folder, config="d", overwrite=True)
    refuse_other_images(folder)
    assert len(read_rows(images_folder(folder), "images")) == 4


def test_pictures_of_another_call_are_refused(tmp_path: Path) -> None:
    folder, other = made(tmp_path / "a"), made(tmp_path / "b", config="d")
    for path in images_folder(folder).iterdir():
        path.unlink()
    for path in images_folder(other).iterdir():
        path.rename(images_folder(folder) / path.name)
    with pytest.raises(UserError, match="not the pictures of"):
        refuse_other_images(folder)


@pytest.mark.parametrize("broken", [b"", b"GIF89a" + b"\0" * 30, png(1)[:20], png(1)[:16] + b"\0" * 20])
def test_bytes_that_are_no_picture_have_no_size(broken: bytes) -> None:
    with pytest.raises(ValueError, match="PNG"):
        png_size(broken)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_pictures_that_one_slice_begins_again_are_completed_by_the_last(tmp_path: Path, order: tuple[int, int]) -> None:
    """Both workers find the pictures complete, and the first one begins them again for a damaged part."""
    folder = made(tmp_path / "x")
    flip(folder / "part-00000.parquet", 60)
    workers = [opened(folder, part=part, overwrite=True) for part in WORKERS]
    for writer in (workers[index] for index in order):
        for index in range(2):
            if writer.slice.takes(index) and not writer.has(index):
                writer.keep(index, group(index))
        writer.complete_shard()
    assert is_complete(folder) and is_complete(images_folder(folder))
    assert dict(stream_images(images_folder(folder), {png_digest(png(1))})) == {png_digest(png(1)): png(1)}


def test_a_call_that_is_killed_after_it_replaced_pictures_leaves_no_trajectories_that_name_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "x"
    opened(folder).keep(0, group(0))
    flip(images_folder(folder) / "part-00000.parquet", 60)
    again = opened(folder)

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(again, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        again.keep(0, group(1))
    assert (images_folder(folder) / "part-00000.parquet").exists()
    assert not opened(folder).has(0)


def test_trajectories_are_not_complete_before_the_pictures_of_all_slices(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    for index in range(2):
        opened(folder, part=WORKERS[index]).keep(index, group(index))
    opened(folder, part=WORKERS[0]).complete_shard()
    flip(images_folder(folder) / "part-00000.parquet", 60)
    with pytest.raises(
        UserError, match=r"x-images/part-00000\.parquet: missing or damaged; bring it, or .*--slice 1/2"
    ):
        opened(folder, part=WORKERS[1]).complete_shard()
    assert not is_complete(folder) and not is_complete(images_folder(folder))
    again = opened(folder, part=WORKERS[0])
    assert not again.has(0)
    again.keep(0, group(0))
    again.complete_shard()
    assert is_complete(folder) and is_complete(images_folder(folder))
