"""The pictures of a trajectory shard: a shard of kind `images` in the folder `<trajectories>-images` beside it.

Part n of it has the pictures that the episodes of part n of the trajectories name, each distinct one once. It is
written before that part, and the shard is complete before the trajectories are: so trajectories never name a picture
that is not there. Both name the same origin. Readers of trajectories that need no pictures never open this folder.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.layout import making_call
from rla.store.reading import part_rows, read_manifest, stream_rows
from rla.store.record import is_complete
from rla.store.shards import ShardWriter, Tell

KIND = "images"
PNG = b"\x89PNG\r\n\x1a\n"
ORIGIN = ("config_digest", "input_digests", "seed")


def images_folder(trajectories: Path) -> Path:
    """The folder of the pictures of a trajectory shard."""
    return trajectories.with_name(f"{trajectories.name}-images")


def png_digest(png: bytes) -> str:
    """SHA-256 (hex) of a PNG file, which is the name of the picture everywhere."""
    return hashlib.sha256(png).hexdigest()


def png_size(png: bytes) -> tuple[int, int]:
    """(width, height) from the header of a PNG file. Raises ValueError for bytes that are no such file."""
    if len(png) < 24 or not png.startswith(PNG) or png[12:16] != b"IHDR":
        raise ValueError("no PNG file")
    width, height = struct.unpack(">II", png[16:24])
    if not (0 < width < 1 << 31 and 0 < height < 1 << 31):
        raise ValueError(f"a PNG file of {width} x {height} pixels")
    return width, height


def image_row(png: bytes, *, digest: str | None = None) -> dict[str, Any]:
    """The row of a picture."""
    width, height = png_size(png)
    return {"digest": digest or png_digest(png), "png": png, "width": width, "height": height}


class ImageShard:
    """The pictures of the trajectories that another writer makes, in the same slices.

    `done`: the groups that have theirs. `keep` comes before the part of the trajectories. `finish_slice` comes before
    the trajectories' own `finish`, and `finish` in the moment in which these are accepted as a whole.
    """

    def __init__(self, trajectories: ShardWriter, *, overwrite: bool = False, tell: Tell = lambda text: None) -> None:
        folder = images_folder(trajectories.folder)
        self._trajectories = trajectories
        self._writer = ShardWriter(
            folder, KIND, trajectories.origin, overwrite=overwrite, part=trajectories.slice, tell=tell
        )
        if trajectories.complete and not self._writer.complete:
            raise UserError(
                f"{folder}: not whole, but {trajectories.folder}, which names these pictures, is; remove both folders "
                f"and call {making_call(trajectories.folder)} again"
            )

    @property
    def folder(self) -> Path:
        return self._writer.folder

    def done(self, group: int) -> bool:
        """Whether the pictures of a group are there."""
        return self._writer.complete or group in self._writer.done

    def keep(self, group: int, rows: Sequence[dict[str, Any]]) -> None:
        """Write the pictures of a group. Old trajectories are removed before, or they would name lost pictures."""
        if self._writer.complete:  # a call ended between the two manifests, and its trajectories were then damaged
            self._writer.reopen()
        self._trajectories.clear()
        self._writer.write(group, rows)

    def forget(self, group: int) -> None:
        """Remove the pictures of a group that is to be played again."""
        self._writer.discard(self._writer.part(group))

    def finish_slice(self) -> None:
        """Write the manifest of this slice, if there are several."""
        if self._writer.slice.count > 1 and not self._writer.complete:
            self._writer.finish(joins=False)

    def finish(self) -> None:
        """The manifest of the whole."""
        if self._writer.slice.count > 1:
            self._writer.join()
        elif not self._writer.complete:
            self._writer.finish()


def images_of_part(part: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """Digest -> PNG of the pictures that a part of trajectories names. UserError if one is missing."""
    if not wanted:
        return {}
    file = images_folder(part.parent) / part.name
    folder = file.parent
    entry = _entry_of(folder, file.name) if is_complete(folder) else None
    rows = part_rows(file, ("digest", "png"), keys=set(wanted), kind=KIND, entry=entry)
    found = {row["digest"]: _checked(file, row) for row in rows}
    _refuse_missing(file, set(wanted) - found.keys())
    return found


def stream_images(folder: Path, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """(digest, PNG) of the pictures `wanted` of a complete shard, each once, a few in memory at a time.

    Raises UserError if one is missing.
    """
    left = set(wanted)
    if not left:
        return
    for row in stream_rows(folder, KIND, ("digest", "png"), keys=left):
        if row["digest"] in left:
            left.discard(row["digest"])
            yield row["digest"], _checked(folder, row)
    _refuse_missing(folder, left)


def refuse_other_images(trajectories: Path) -> None:
    """UserError if another call made the pictures beside a trajectory shard."""
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


def _entry_of(folder: Path, name: str) -> dict[str, Any]:
    for part in read_manifest(folder, KIND)["parts"]:
        if part["name"] == name:
            return dict(part)
    raise UserError(f"{folder / name}: no such part; call {making_call(folder)} again with --overwrite")


def _checked(place: Path, row: Mapping[str, Any]) -> bytes:
    png: bytes = row["png"]
    if png_digest(png) != row["digest"]:
        raise UserError(
            f"{place}: picture {row['digest'][:12]} was changed; call {making_call(place)} again with --overwrite"
        )
    return png


def _refuse_missing(place: Path, missing: Collection[str]) -> None:
    if missing:
        raise UserError(
            f"{place}: {len(missing)} pictures are missing (the first: {min(missing)[:12]}); bring the folder that the "
            "rollout wrote, or call rollout again with --overwrite"
        )
