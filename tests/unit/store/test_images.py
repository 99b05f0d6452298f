"""The `images` shard beside trajectories: never behind them, each picture once, opened by who wants pictures alone."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla.errors import UserError
from rla.pictures.shard import (
    ImageShard,
    image_rows,
    images_folder,
    images_of_part,
    refuse_other_images,
    stream_images,
    without_pngs,
)
from rla.pictures.vision import png_digest, png_size
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


def writers(
    folder: Path, *, part: Slice = WHOLE, config: str = "c", overwrite: bool = False
) -> tuple[ShardWriter, ImageShard]:
    writer = ShardWriter(
        folder, "trajectories", Origin(config=config, inputs={}, seed=0), part=part, overwrite=overwrite
    )
    return writer, ImageShard(writer, overwrite=overwrite)


def keep(writer: ShardWriter, images: ImageShard, index: int) -> None:
    images.keep(index, image_rows(group(index)))
    writer.write(index, [without_pngs(one).row() for one in group(index)])


def finish(writer: ShardWriter, images: ImageShard) -> None:
    writer.finish(check=lambda counts: images.finish())


def made(folder: Path, *, config: str = "c", overwrite: bool = False) -> Path:
    writer, images = writers(folder, config=config, overwrite=overwrite)
    for index in range(2):
        keep(writer, images, index)
    finish(writer, images)
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
    writer, images = writers(folder)
    keep(writer, images, 0)
    images.keep(1, image_rows(group(1)))  # killed here: the part of the trajectories is not there
    writer, images = writers(folder)
    assert (writer.done, images.done(0), images.done(1)) == ({0}, True, True)
    keep(writer, images, 1)
    finish(writer, images)
    assert is_complete(folder) and is_complete(images_folder(folder))


def test_a_call_that_ends_between_the_two_manifests_is_carried_on(tmp_path: Path) -> None:
    folder = tmp_path / "trajectories"
    writer, images = writers(folder)
    for index in range(2):
        keep(writer, images, index)
    images.finish()
    writer.part(1).write_bytes(b"torn")
    writer, images = writers(folder)
    assert writer.done == {0} and images.done(1)
    keep(writer, images, 1)
    finish(writer, images)
    assert len(read_rows(images_folder(folder), "images")) == 4 and is_complete(folder)


def test_a_torn_part_of_the_pictures_is_made_again_with_its_trajectories(tmp_path: Path) -> None:
    folder = tmp_path / "trajectories"
    keep(*writers(folder), 0)
    (images_folder(folder) / "part-00000.parquet").write_bytes(b"torn")
    writer, images = writers(folder)
    assert writer.done == {0} and not images.done(0)
    keep(writer, images, 0)
    finish(writer, images)
    assert is_complete(folder)


def test_slices_in_any_order_give_what_one_call_gives(tmp_path: Path) -> None:
    whole, cut = made(tmp_path / "whole"), tmp_path / "cut"
    for index in (2, 1):
        writer, images = writers(cut, part=Slice(index=index, count=2))
        keep(writer, images, index - 1)
        finish(writer, images)
        assert is_complete(images_folder(cut)) is is_complete(cut) is (index == 1)
    for one, other in ((whole, cut), (images_folder(whole), images_folder(cut))):
        for part in sorted(one.glob("*.parquet")):
            assert part.read_bytes() == (other / part.name).read_bytes()


def test_groups_that_failed_take_their_pictures_with_them(tmp_path: Path) -> None:
    writer, images = writers(tmp_path / "trajectories")
    for index in range(2):
        keep(writer, images, index)
    writer.discard(writer.part(0))
    images.forget(0)
    again, images = writers(tmp_path / "trajectories")
    assert again.done == {1} and (images.done(0), images.done(1)) == (False, True)


def test_both_folders_are_replaced_together_or_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "trajectories")
    with pytest.raises(UserError, match="--overwrite"):
        writers(folder, config="d")
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
def test_trajectories_are_not_complete_before_the_pictures_of_all_slices(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    """Both workers find the pictures complete, and the first one begins them again for a damaged part."""
    folder = made(tmp_path / "x")
    flip(folder / "part-00000.parquet", 60)

    def call() -> Iterator[str]:
        workers = [(part, *writers(folder, part=part, overwrite=True)) for part in WORKERS]
        for part, writer, images in (workers[index] for index in order):
            for index in range(2):
                if part.takes(index) and index not in writer.done:
                    keep(writer, images, index)
            try:
                finish(writer, images)
            except UserError as error:
                yield str(error)

    while said := list(call()):
        assert len(said) == 1 and "the pictures of a slice are missing; call the same command again" in said[0]
        assert order == (1, 0)
    assert is_complete(folder) and is_complete(images_folder(folder))
    assert dict(stream_images(images_folder(folder), {png_digest(png(1))})) == {png_digest(png(1)): png(1)}
