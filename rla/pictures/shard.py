"""The images of a trajectory shard: a shard of kind `images` in the folder `<trajectories>-images` next to it.

Part n contains the images that the episodes of part n of the trajectories name, each distinct image once. It is written
before that part, and the shard is completed before the trajectories are, so trajectories never name a missing image.
Both record the same origin. Readers of trajectories that need no images never open this folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.pictures.vision import png_digest, png_size
from rla.store.atomic import slices
from rla.store.layout import making_call
from rla.store.manifest import ORIGIN, is_complete
from rla.store.reading import group_of, part_rows, read_manifest, shard_parts, stream_rows
from rla.store.records import ShownImage, Trajectory
from rla.store.shards import ShardWriter, Tell

KIND = "images"
PNGS = "pngs"  # key of a trajectory row that has its images: digest -> PNG file


def images_folder(trajectories: Path) -> Path:
    return trajectories.with_name(f"{trajectories.name}-images")


def image_shard(trajectories: ShardWriter, *, overwrite: bool, tell: Tell) -> ShardWriter:
    """The writer of the images of the trajectories that another writer makes, in the same slices. Raises UserError if
    the trajectories are complete and their images are not.
    """
    folder = images_folder(trajectories.folder)
    images = ShardWriter(folder, KIND, trajectories.origin, overwrite=overwrite, part=trajectories.slice, tell=tell)
    if trajectories.complete and not images.complete:
        raise UserError(
            f"{folder}: not whole, although {trajectories.folder}, which names these pictures, is; remove both folders "
            f"and call {making_call(trajectories.folder)} again"
        )
    return images


def finish_images(images: ShardWriter, trajectories: Path) -> None:
    """Complete the images shard once every part of `trajectories` has its part of images. Raises UserError if one has
    not.

    The slices of images have no manifests: those of the trajectories say when all are there.
    """
    count = images.slice.count
    if count > 1:
        images = ShardWriter(images.folder, KIND, images.origin)
    if images.complete:
        return
    if missing := {*map(group_of, shard_parts(trajectories))} - images.done:
        lost = min(missing)
        again = "the same command" if count == 1 else f"the command with --slice {slices(count)[lost % count]}"
        raise UserError(f"{images.part(lost)}: missing or damaged; bring it, or call {again} again")
    images.finish()


def images_of_part(part: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """digest -> PNG of the `wanted` images of a part of trajectories. Raises UserError if one is missing."""
    if not wanted:
        return {}
    file = images_folder(part.parent) / part.name
    entry = None
    if is_complete(file.parent):
        entry = next((dict(one) for one in read_manifest(file.parent, KIND)["parts"] if one["name"] == file.name), None)
    return dict(_checked(file, part_rows(file, ("digest", "png"), keys=set(wanted), kind=KIND, entry=entry), wanted))


def stream_images(folder: Path, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """(digest, PNG) of the `wanted` images of a complete shard, each once, a few in memory at a time.

    Raises UserError if one is missing.
    """
    if wanted:
        yield from _checked(folder, stream_rows(folder, KIND, ("digest", "png"), keys=set(wanted)), wanted)


def _checked(place: Path, rows: Iterable[Mapping[str, Any]], wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    left = set(wanted)
    for row in rows:
        if row["digest"] in left:
            left.discard(row["digest"])
            if png_digest(row["png"]) != row["digest"]:
                again = f"call {making_call(place)} again with --overwrite"
                raise UserError(f"{place}: picture {row['digest'][:12]} was changed; {again}")
            yield row["digest"], row["png"]
    if left:
        raise UserError(
            f"{place}: {len(left)} pictures are missing (the first: {min(left)[:12]}); bring the folder that the "
            "rollout wrote, or remove both folders and call rollout again"
        )


def refuse_other_images(trajectories: Path) -> None:
    """Raises UserError if another call made the images of a trajectory shard."""
    folder = images_folder(trajectories)
    own, other = read_manifest(trajectories, "trajectories"), read_manifest(folder, KIND)
    if any(own.get(key) != other.get(key) for key in ORIGIN):
        raise UserError(
            f"{folder}: not the pictures of {trajectories}: made with other parameters or inputs; call "
            f"{making_call(trajectories)}, which makes both, again with --overwrite"
        )


def named_images(row: Mapping[str, Any]) -> Set[str]:
    """The digests that a row of trajectories names."""
    return {digest for shown in row["screens"] or () for digest in shown}


def distinct_images(seen: Sequence[Sequence[bytes]]) -> list[ShownImage] | None:
    """`seen` has the PNG files of each observation, starting with the reset. None if there are no images."""
    found: dict[str, ShownImage] = {}
    for observation, images in enumerate(seen):
        for position, png in enumerate(images):
            digest = png_digest(png)
            image = found.setdefault(digest, ShownImage(digest=digest, png=png, shown=[]))
            image.shown.append({"observation": observation, "position": position})
    return list(found.values()) or None


def image_rows(trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """The rows of an `images` part: each distinct image of the episodes of a group once."""
    found = {image.digest: image.png for one in trajectories for image in one.images or ()}
    return [
        dict(zip(("digest", "png", "width", "height"), (digest, png, *png_size(png)), strict=True))
        for digest, png in sorted(found.items())
    ]


def without_pngs(trajectory: Trajectory) -> Trajectory:
    """The trajectory with digests in place of files."""
    observations = len(trajectory.steps) + 1
    places = [
        (place["observation"], place["position"], image.digest)
        for image in trajectory.images or ()
        for place in image.shown
    ]
    count = max([observations, *(observation + 1 for observation, _, _ in places)])
    screens: list[list[str]] = [[] for _ in range(count)]
    for observation, _, digest in sorted(places):
        screens[observation].append(digest)
    return replace(trajectory, images=None, screens=screens)


def with_pngs(part: Path, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a part of trajectories, with the images that they name under PNGS."""
    named = {digest for row in rows for digest in named_images(row)}
    found = images_of_part(part, named)
    return [row | {PNGS: {digest: found[digest] for digest in named_images(row)}} if named else row for row in rows]


def screens_of(trajectory: Mapping[str, Any]) -> list[tuple[bytes, ...]]:
    """The images of each observation of a row, including the one after the last step; empty without `PNGS`."""
    pngs = trajectory.get(PNGS)
    if pngs is None:
        return []
    return [tuple(pngs[digest] for digest in shown) for shown in trajectory["screens"]]
