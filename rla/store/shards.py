"""Shard folders: `part-*.parquet` and, last of all, `manifest.json`.

A folder passes through three states. *Started*: `started.json` names the digests of config and inputs that its parts
belong to. *Growing*: parts appear, each written aside and renamed. *Complete*: `manifest.json` lists the parts with
their sizes. A rerun with the same digests keeps every part that is there; with others it is refused. Slices of a shard
(`rla.store.slices`) grow it together.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rla import __version__
from rla.errors import UserError
from rla.store.atomic import clear_aside, create_json, write_atomic, write_json
from rla.store.reading import (
    damaged,
    verify_parts,
)
from rla.store.schema import load_schema, to_table
from rla.store.slices import MANIFEST, STARTED, WHOLE, Slice, joined, optional_json, read_json, slice_manifests, slices

Check = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a shard is made from: equal origins make equal shards."""

    config: str
    inputs: Mapping[str, str]
    seed: int

    def as_json(self) -> dict[str, Any]:
        return {"config_digest": self.config, "input_digests": dict(self.inputs), "seed": self.seed}


class ShardWriter:
    """Writes one shard folder, or a slice of it. `done` holds the indices of parts that an earlier call has finished.

    A folder of another origin is refused, or replaced with `overwrite`; one of the same origin is always carried on. A
    folder that was begun in another number of slices is refused; with `overwrite` its parts are kept and the rest is
    divided anew. A slice never replaces a folder: others may be writing to it.
    """

    def __init__(
        self, folder: Path, kind: str, origin: Origin, *, overwrite: bool = False, part: Slice = WHOLE
    ) -> None:
        self.folder, self.kind, self.origin, self.slice = folder, kind, origin, part
        self.complete = False
        self._header = {"kind": kind, "schema_version": load_schema(kind)["version"], **origin.as_json()}
        for name in (STARTED, MANIFEST):
            clear_aside(folder / name, writer=part.tag)
        self._open(overwrite)
        self.done = {group_of(path) for path in folder.glob("part-*.parquet")}

    def _open(self, overwrite: bool) -> None:
        found = self._found()
        if found is None and any(self.folder.glob("*.parquet")):
            found = self._found()  # another slice may have begun it in this moment
            if found is None and not overwrite:
                raise UserError(
                    f"{self.folder}: holds Parquet files of unknown origin; use --overwrite or another folder"
                )
        if found is not None and self._goes_on(*found, overwrite=overwrite):
            return
        if found is not None or (overwrite and any(self.folder.glob("*.parquet"))):
            self._clear()
        self.folder.mkdir(parents=True, exist_ok=True)
        create_json(self.folder / STARTED, self._started(), writer=self.slice.tag)
        self._open(overwrite=False)  # of several that start together one was first: is it of the same origin?

    def _found(self) -> tuple[str, dict[str, Any]] | None:
        """The file that tells the folder's state. Another slice may complete it meanwhile: its manifest is looked for
        twice.
        """
        for name in (MANIFEST, STARTED, MANIFEST):
            found = optional_json(self.folder / name)
            if found is not None:
                return name, found
        return None

    def _started(self) -> dict[str, Any]:
        return self._header | ({} if self.slice.count == 1 else {"slices": self.slice.count})

    def _goes_on(self, name: str, found: Mapping[str, Any], *, overwrite: bool) -> bool:
        """Whether what is there is kept; False where the folder is to be made anew."""
        differing = [key for key in self._header if found.get(key) != self._header[key]]
        if differing and not overwrite:
            raise UserError(
                f"{self.folder}: made with another {', '.join(differing)}; "
                "rerun with --overwrite or choose another folder"
            )
        if differing:
            return False
        if name == MANIFEST:
            self.complete = not damaged(self.folder, found, tolerate=overwrite)
            return self.complete
        if found.get("slices", 1) != self.slice.count:
            self._divide(found.get("slices", 1), overwrite=overwrite)
        return True

    def _divide(self, count: int, *, overwrite: bool) -> None:
        """Take over the parts of a folder that was begun in `count` slices."""
        if not (overwrite and self.slice.alone):
            raise UserError(
                f"{self.folder}: begun in {count} slice{'s' * (count > 1)}, this call would make {self.slice.count}; "
                f"go on with {f'--slice i/{count}' if count > 1 else 'an undivided call'}, or, when nothing else "
                "writes to it, divide what is left anew: --overwrite, with --workers or without"
            )
        for part in slices(count):
            part.manifest(self.folder).unlink(missing_ok=True)
        write_json(self.folder / STARTED, self._started(), writer=self.slice.tag)

    def _clear(self) -> None:
        if not self.slice.alone:
            raise UserError(
                f"{self.folder}: a slice does not replace a folder that others may be writing to; "
                "remove it, then call the slices without --overwrite"
            )
        shutil.rmtree(self.folder)

    def write(self, index: int, rows: Sequence[dict[str, Any]]) -> None:
        """Write part `index`; it is whole or absent. Rows are checked against the kind's schema."""
        table = to_table(self.kind, list(rows))
        path = self.part(index)
        write_atomic(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))
        self.done.add(index)

    def part(self, index: int) -> Path:
        """The file of part `index`, whether it is there or not."""
        return self.folder / f"part-{index:05d}.parquet"

    def parts(self) -> list[Path]:
        """The parts of this slice that are there, in order."""
        found = sorted(self.folder.glob("part-*.parquet"))
        return [path for path in found if self.slice.count == 1 or self.slice.takes(group_of(path))]

    def discard(self, path: Path) -> None:
        """Remove a part, and the manifest of its slice: the next call of that slice makes both anew."""
        path.unlink(missing_ok=True)
        if self.slice.count > 1:
            owner = slices(self.slice.count)[group_of(path) % self.slice.count]
            owner.manifest(self.folder).unlink(missing_ok=True)

    def finish(
        self,
        counts: Mapping[str, Any] | None = None,
        *,
        tokenizer: str | None = None,
        check: Check = lambda counts: None,
    ) -> dict[str, Any]:
        """Write the manifest; from here on the shard, or this slice of it, is complete. The last slice completes the
        shard. `tokenizer`: the fingerprint of the one that made the shard's token ids. `check` raises where the counts
        of the whole shard are not acceptable.
        """
        manifest = {
            **self._header,
            "rows": 0,
            "counts": dict(counts or {}),
            **({} if tokenizer is None else {"tokenizer": tokenizer}),
            "parts": [
                {"name": path.name, "rows": pq.read_metadata(path).num_rows, "bytes": path.stat().st_size}
                for path in self.parts()
            ],
            "versions": {"rla": __version__, "pyarrow": pa.__version__},
        }
        manifest["rows"] = sum(part["rows"] for part in manifest["parts"])
        if self.slice.count == 1:
            return self._complete(manifest, check)
        write_json(self.slice.manifest(self.folder), {**manifest, "slice": str(self.slice)})
        self.join(check)
        return manifest

    def join(self, check: Check = lambda counts: None) -> None:
        """Complete the shard if all slices have written their manifests. Several calls may do so at the same time."""
        manifests = slice_manifests(self.folder, self.slice.count)
        there = [manifest for manifest in manifests.values() if manifest is not None]
        if len(there) < len(manifests):
            return
        for part, manifest in zip(manifests, there, strict=True):
            if any(manifest.get(key) != value for key, value in self._header.items()):
                raise UserError(f"{part.manifest(self.folder)}: made with other parameters; bring the right one")
        whole = joined(there)
        self._complete(whole, check)

    def _complete(self, manifest: dict[str, Any], check: Check) -> dict[str, Any]:
        check(manifest["counts"])
        if self.slice.count > 1:
            verify_parts(self.folder, manifest)
        write_json(self.folder / MANIFEST, manifest, writer=self.slice.tag)
        (self.folder / STARTED).unlink(missing_ok=True)
        self.complete = True
        return manifest


def group_of(part: Path) -> int:
    """The index in the name of a part."""
    return int(part.stem.split("-")[1])


def write_shard(
    folder: Path,
    kind: str,
    rows: Sequence[dict[str, Any]],
    origin: Origin,
    *,
    counts: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """A shard of a single part. A complete one of the same origin is left as it is."""
    writer = ShardWriter(folder, kind, origin, overwrite=overwrite)
    if writer.complete:
        return read_json(folder / MANIFEST)
    writer.write(0, rows)
    return writer.finish(counts)
