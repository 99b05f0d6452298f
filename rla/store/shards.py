"""Shard folders: `part-*.parquet` and, last of all, `_manifest.parquet`, which `rla.store.enclosed` describes.

`rla.store.parts` holds what a part says of itself, `rla.store.shard_folder` in which folder a call may go on. Slices
of a shard (`rla.store.slices`) grow it together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from rla import __version__
from rla.errors import UserError
from rla.store.aside import alone_in
from rla.store.atomic import clear_aside, write_atomic
from rla.store.enclosed import write_record
from rla.store.origin import Origin
from rla.store.parts import checked_entry, file_digest, group_of, part_entry, part_name, shard_parts, write_part
from rla.store.reading import verify_shard
from rla.store.removing import remove_file
from rla.store.schema import to_table
from rla.store.shard_folder import FolderState, ShardFolder, Tell
from rla.store.slices import MANIFEST, STARTED, WHOLE, Slice, joined, read_json, sealed, slice_manifests, slices

Check = Callable[[Mapping[str, Any]], None]


class ShardWriter:
    """Writes one shard folder, or a slice of it. `done`: the indices of this slice's parts that are finished.

    A folder of another origin is refused, or replaced with `overwrite`; one of the same origin is always carried on. A
    folder that was begun in another number of slices is refused; with `overwrite` its parts are kept and the rest is
    divided anew. A slice never replaces a folder: others may be writing to it. Parts that an earlier call has left are
    read in full: damaged ones are made again, which `tell` is told, and foreign ones refused, or removed with
    `overwrite`. The first `write` removes what is replaced when its part is on the disk; without a part `finish` does.
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        origin: Origin,
        *,
        overwrite: bool = False,
        part: Slice = WHOLE,
        tell: Tell = lambda text: None,
    ) -> None:
        self.folder, self.kind, self.origin, self.slice = folder, kind, origin, part
        self._place = ShardFolder(folder, kind, origin, part)
        self._header = self._place.header
        for name in (STARTED, MANIFEST):
            clear_aside(folder / name, writer=part.tag)
        self._tell, self._replaces = tell, False  # what lies here, once there is something to put in its place
        state = self._open(tell, overwrite=overwrite)
        self.complete = state is FolderState.COMPLETE
        if self.complete:
            self._place.tidy()
        if self._replaces:
            self._entries = self._place.own_entries()
        else:
            self._entries = {} if self.complete else self._place.entries(tell, overwrite=overwrite)

    @property
    def done(self) -> Set[int]:
        return self._entries.keys()

    @property
    def replaced(self) -> str | None:
        """The digest of the record of another origin that the slices of this call may replace (`Slice.replaces`)."""
        return self._place.other

    def _open(self, tell: Tell, *, overwrite: bool) -> FolderState:
        state = self._place.state(overwrite=overwrite)
        if state is FolderState.GROWING:
            self._place.divide()
        if state is FolderState.REPLACED:
            self._replaces = self._place.other is not None
            if not self._replaces:
                self._place.take_over(tell)
        if state is FolderState.NEW:
            self._place.begin()
            return self._open(tell, overwrite=False)  # of several that start together, is the first of this origin?
        return state

    def write(self, index: int, rows: Sequence[dict[str, Any]]) -> None:
        """Write part `index`; it is whole or absent. Rows are checked against the kind's schema."""
        self.write_table(index, to_table(self.kind, list(rows)))

    def write_table(self, index: int, table: pa.Table) -> None:
        """`write` of rows that have been checked."""
        path = self.part(index)

        def write(temporary: Path) -> None:
            write_part(temporary, table, kind=self.kind, origin=self._place.origin, group=index)
            entries.append(part_entry(temporary, name=path.name))

        @contextmanager
        def around() -> Iterator[None]:
            self.replace()  # the part is on the disk: a full one has cost nothing
            with alone_in(self.folder):  # nobody removes the part for the one that it replaces
                yield

        entries: list[dict[str, Any]] = []
        write_atomic(path, write, around=around)
        self._entries[index] = entries[-1]

    def replace(self) -> None:
        """What lies here of another origin goes now, if it has not yet."""
        if self._replaces:
            self._place.take_over(self._tell)
            self._entries = self._place.entries(self._tell, overwrite=True)
            self._replaces = False

    def part(self, index: int) -> Path:
        """The file of part `index`, whether it is there or not."""
        return self.folder / part_name(index)

    def parts(self) -> list[Path]:
        """The finished parts of this slice, in order."""
        return [self.part(index) for index in sorted(self.done)]

    def discard(self, path: Path) -> None:
        """Remove a part, and the manifest of its slice: the next call of that slice makes both anew."""
        remove_file(path)
        self._entries.pop(group_of(path), None)
        if self.slice.count > 1:
            owner = slices(self.slice.count)[group_of(path) % self.slice.count]
            remove_file(owner.manifest(self.folder))

    def finish(
        self,
        counts: Mapping[str, Any] | None = None,
        *,
        tokenizer: str | None = None,
        check: Check = lambda counts: None,
        joins: bool = True,
    ) -> dict[str, Any]:
        """Write the manifest; from here on the shard, or this slice of it, is complete. The last slice completes the
        shard, with `joins`. `tokenizer`: the fingerprint of the one that made the shard's token ids. `check` raises
        where the counts of the whole shard are not acceptable.
        """
        self.replace()
        manifest = {
            **self._header,
            **self.origin.named(),
            "rows": 0,
            "counts": dict(counts or {}),
            **({} if tokenizer is None else {"tokenizer": tokenizer}),
            "parts": self._confirmed(),
            "versions": {"rla": __version__, "pyarrow": pa.__version__},
        }
        manifest["rows"] = sum(part["rows"] for part in manifest["parts"])
        if self.slice.count == 1:
            return self._complete(manifest, check)
        write_record(self.slice.manifest(self.folder), self.kind, sealed({**manifest, "slice": str(self.slice)}))
        if joins:
            self.join(check)
        return manifest

    def _confirmed(self) -> list[dict[str, Any]]:
        """The entries of this slice's parts, which are what lies on the disk now. Raises UserError where they are not.

        An equal call at the same time may have written a part once more.
        """
        there = {group_of(path) for path in shard_parts(self.folder)}
        for index in sorted(self.done | {group for group in there if self.slice.count == 1 or self.slice.takes(group)}):
            path = self.part(index)
            if index not in self.done or index not in there:
                raise UserError(
                    f"{path}: {'appeared' if index in there else 'was removed'} while the shard was made; "
                    f"{'remove it and ' if index in there else ''}call the stage again"
                )
            if file_digest(path) != self._entries[index]["sha256"]:
                self._entries[index] = checked_entry(path, self.kind, self._place.origin)
        return [self._entries[index] for index in sorted(self.done)]

    def join(self, check: Check = lambda counts: None) -> None:
        """Complete the shard if all slices have written their manifests. Several calls may do so at the same time."""
        manifests = slice_manifests(self.folder, self.slice.count)
        there = [manifest for manifest in manifests.values() if manifest is not None]
        if len(there) < len(manifests):
            return
        for part, manifest in zip(manifests, there, strict=True):
            if any(manifest.get(key) != value for key, value in self._header.items()):
                unlike = self.origin.unlike(manifest)
                raise UserError(f"{part.manifest(self.folder)}: {unlike}; bring the right one")
        whole = joined(there)
        self._complete(whole, check)

    def _complete(self, manifest: dict[str, Any], check: Check) -> dict[str, Any]:
        check(manifest["counts"])
        if self.slice.count > 1:
            verify_shard(self.folder, manifest, whole=True)
        write_record(self.folder / MANIFEST, self.kind, sealed(manifest), writer=self.slice.tag)
        self._place.tidy()
        self.complete = True
        return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A shard of a single part."""

    folder: Path
    kind: str
    rows: Sequence[dict[str, Any]]
    counts: Mapping[str, Any] = field(default_factory=dict)


def write_shards(
    outputs: Sequence[Output], origin: Origin, *, overwrite: bool = False, tell: Tell = lambda text: None
) -> list[dict[str, Any]]:
    """The manifests of shards that belong together. A complete one of the same origin is left as it is.

    Nothing is removed before all rows have been checked and no folder is refused. Then all that is of another origin
    goes before the first is written, so that a call which ends here leaves none of it beside a new one.
    """
    tables = [to_table(output.kind, list(output.rows)) for output in outputs]
    for output in outputs:
        ShardFolder(output.folder, output.kind, origin, WHOLE).state(overwrite=overwrite)
    writers = [ShardWriter(one.folder, one.kind, origin, overwrite=overwrite, tell=tell) for one in outputs]
    for writer in writers:
        writer.replace()
    manifests = []
    for output, table, writer in zip(outputs, tables, writers, strict=True):
        if writer.complete:
            manifests.append(read_json(output.folder / MANIFEST))
            continue
        writer.write_table(0, table)
        manifests.append(writer.finish(output.counts))
    return manifests


def write_shard(
    folder: Path,
    kind: str,
    rows: Sequence[dict[str, Any]],
    origin: Origin,
    *,
    counts: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """`write_shards` of one."""
    return write_shards(
        [Output(folder=folder, kind=kind, rows=rows, counts=counts or {})], origin, overwrite=overwrite
    )[0]
