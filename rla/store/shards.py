"""Writing shard folders: `_started.parquet`, then `part-*.parquet`, and last of all `_manifest.parquet`.

The first record names the kind of the shard and the digests of config and inputs that its parts are made from. Each
part is written under a temporary name and renamed. Its footer says which shard it is of:

    rla_origin   digest of the kind, schema version, config, inputs and seed of the shard
    rla_group    index of the group, which the file's name says too

So a call that was killed is carried on by the same call: it reads the parts that are there, whose pages have
checksums, and makes those again that are damaged. The manifest names the size and SHA-256 of each part, which readers
compare.

A call holds the lock of its folder while it writes (`rla.store.atomic`). Slices write different parts, side by side;
they open the folder, begin it and write the manifest one after the other (`lock_folder`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rla import __version__
from rla.config.schema import shown_value
from rla.errors import UserError
from rla.store.atomic import (
    WHOLE,
    Slice,
    lock_folder,
    refuse_others,
    remove_file,
    slices,
    write_atomic,
)
from rla.store.manifest import (
    CHECKSUM,
    MANIFEST,
    ORIGIN,
    STARTED,
    Origin,
    UnreadableFile,
    checked_manifest,
    file_digest,
    is_complete,
    optional_json,
    read_regular,
    slice_manifests,
    write_record,
)
from rla.store.reading import check_parts, group_of, opened_part, read_part, shard_parts
from rla.store.schema import load_schema, to_table
from rla.text import counted

_ORIGIN, _GROUP = "rla_origin", "rla_group"
_SLICE_MANIFESTS = "_manifest-*-of-*.parquet"
_OURS = r"part-\d{5,}\.parquet|_manifest(?:-\d+-of-\d+)?\.parquet|_started\.parquet"
_LEFT = re.compile(rf"\.(?:{_OURS})\.tmp")  # by a call that was killed
_SHARD_FILE = re.compile(rf"{_OURS}|{_LEFT.pattern}")

Tell = Callable[[str], None]
Check = Callable[[Mapping[str, Any]], None]


class _ForeignPart(UserError):
    """A part that is whole and belongs elsewhere."""


def write_part(path: Path, table: pa.Table, *, origin: str, group: int) -> None:
    """A table of the kind's schema as the part of a group. The same rows give the same bytes."""
    with pq.ParquetWriter(path, table.schema, compression="zstd", write_page_checksum=True) as writer:
        if table.num_rows:  # the `datasets` library fails on a row group without rows, not on a file without groups
            writer.write_table(table)
        writer.add_key_value_metadata({_ORIGIN: origin, _GROUP: str(group)})


def part_entry(path: Path, *, name: str | None = None) -> dict[str, Any]:
    """A part in a manifest: name, rows, bytes and SHA-256. `name`: its later name, if that is another one."""
    rows = pq.read_metadata(path).num_rows
    return {"name": name or path.name, "rows": rows, "bytes": path.stat().st_size, "sha256": file_digest(path)}


def _footer(path: Path) -> dict[str, str]:
    with opened_part(path) as file:
        return {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}


def _foreign_files(folder: Path) -> list[Path]:
    """The files of a shard folder that `rla` did not write: all of them, unless a record or a part says otherwise.

    Parts that cannot be read are ours if they lie next to one that can.
    """
    ours = False
    strange: set[Path] = set()
    for path in shard_parts(folder):
        with suppress(UserError):
            if _ORIGIN in _footer(path):
                ours = True
            else:
                strange.add(path)
    for record in (folder / MANIFEST, folder / STARTED):  # one that is damaged still holds a key of ours
        keys = (b'"schema_version"', b'"config_digest"', b'"input_digests"')
        ours = ours or (record.is_file() and any(key in read_regular(record) for key in keys))
    if not ours:
        return sorted(folder.iterdir())
    return sorted(
        strange | {path for path in folder.iterdir() if not _SHARD_FILE.fullmatch(path.name) or path.is_dir()}
    )


class ShardWriter:
    """Writes one shard folder, or a slice of it. `done`: the indices of this slice's parts that are finished.
    `complete`: there is nothing left to write.

    A folder of the same origin is carried on, however its parts were divided into slices. Any other folder is refused,
    or with `overwrite` replaced: parts of this origin are kept, and everything else that `rla` wrote is removed.
    Nothing is written or removed before the first part of the new shard is on disk (`begin`).

    `tell` is told about damaged parts, which are made again, and about parts that are removed.
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
        self._header = {"kind": kind, "schema_version": load_schema(kind)["version"], **origin.as_json()}
        self._digest = hashlib.sha256(json.dumps(self._header, sort_keys=True).encode()).hexdigest()[:16]
        self._overwrite, self._tell, self._begun = overwrite, tell, False
        self._entries: dict[int, dict[str, Any]] = {}  # of the manifest, by group
        self._had_manifest = self.complete = False
        if not folder.exists():  # nothing is read without the lock: another slice may make the folder from here on
            return
        if not folder.is_dir():
            raise UserError(f"{folder}: a file, where a folder is to be; choose another name")
        with lock_folder(folder):
            self._had_manifest = is_complete(folder)
            self.complete = self._own_record() == MANIFEST
            if self.complete:
                self._tidy()
            else:
                self._find_parts()

    @property
    def done(self) -> Set[int]:
        return self._entries.keys()

    def _own_record(self) -> str:
        """The name of the record that says that the folder is of this origin: MANIFEST if the shard is complete and
        sound, STARTED if it has been begun. Empty if there is nothing, or a shard that is to be replaced.

        Raises UserError if this call may not write the folder.
        """
        try:
            manifest = optional_json(self.folder / MANIFEST)
            record = optional_json(self.folder / STARTED) if manifest is None else manifest
            if record is None:
                if set(self.folder.glob("*.parquet")).difference(self.folder.glob(_SLICE_MANIFESTS)):
                    raise UserError(
                        f"{self.folder}: holds Parquet files of unknown origin; use --overwrite or another folder"
                    )
                return ""
            if not self._is_own(record):
                raise UserError(
                    f"{self.folder}: {self._unlike(record)}; rerun with --overwrite or choose another folder"
                )
            if manifest is None:
                return STARTED
            check_parts(self.folder, checked_manifest(self.folder / MANIFEST, manifest), whole=True)
            return MANIFEST
        except UnreadableFile:
            raise
        except UserError as error:
            if not self._overwrite:
                raise
            if not self.slice.replaces:
                raise UserError(
                    f"{error}; and a slice does not replace a folder that others may be writing to: remove it, then "
                    "call the slices without --overwrite"
                ) from None
        refuse_others(self.folder, _foreign_files(self.folder))
        return ""

    def _is_own(self, record: Mapping[str, Any]) -> bool:
        return all(record.get(key) == value for key, value in self._header.items())

    def _unlike(self, record: Mapping[str, Any]) -> str:
        for key in ("kind", "schema_version"):
            if record.get(key) != self._header[key]:
                return f"its {key} is {shown_value(record.get(key))}, this call makes {shown_value(self._header[key])}"
        return self.origin.unlike(record)

    def _find_parts(self, *, remove: bool = False) -> None:
        """Look at this slice's parts, and with `overwrite` at the footers of all others. `remove`: those that are
        damaged or of another origin go. Raises UserError for a part of another origin, unless it is to be replaced.
        """
        foreign = 0
        for path in shard_parts(self.folder):
            group = group_of(path)
            mine = self.slice.takes(group)
            if group in self._entries or not (mine or self._overwrite):
                continue
            flaw = self._flaw(path)
            if flaw is None and mine:
                self._entries[group] = part_entry(path)
            elif isinstance(flaw, _ForeignPart) and not self._overwrite:
                raise UserError(f"{flaw}; remove it, or call the stage with --overwrite")
            elif flaw is not None and remove:
                if isinstance(flaw, _ForeignPart):
                    foreign += 1
                else:
                    self._tell(f"{str(flaw).partition(';')[0]}; it is made again")
                remove_file(path)
        if foreign:
            self._tell(f"{self.folder}: replaces {counted(foreign, 'part')} of another origin")

    def _flaw(self, path: Path) -> UserError | None:
        """What is wrong with a part, a _ForeignPart if it is of another shard or group: its footer, and if it is of
        this slice all of its pages. Raises UnreadableFile, because such a part may be whole.
        """
        try:
            footer = _footer(path)
            for key, value in {_ORIGIN: self._digest, _GROUP: str(group_of(path))}.items():
                if footer.get(key) != value:
                    return _ForeignPart(f"{path}: a part of another {key.removeprefix('rla_')}")
            if self.slice.takes(group_of(path)):
                read_part(path, kind=self.kind)
        except UnreadableFile:
            raise
        except UserError as error:
            return error
        return None

    def begin(self) -> None:
        """Make the folder this call's, before a part gets its name: write the first record, then remove everything
        that is not of this shard. A complete shard is begun again, with its sound parts.

        Raises UserError as the constructor does, and if another call has completed or replaced the shard since.
        """
        with self._begun_and_locked():
            pass

    @contextmanager
    def _begun_and_locked(self) -> Iterator[None]:
        with lock_folder(self.folder):
            self._begin()
            yield

    def _begin(self) -> None:
        changed = is_complete(self.folder) and not self._had_manifest
        record = "" if changed else self._own_record()
        if changed or (self._begun and record != STARTED):
            raise UserError(f"{self.folder}: another call has completed or replaced it meanwhile; call this one again")
        if self._begun:
            return
        if record != STARTED:  # first, so that a full disk costs nothing
            write_record(self.folder / STARTED, self.kind, {**self._header, **self.origin.named()})
        self._find_parts(remove=True)
        if record != STARTED:
            for path in self.folder.glob(_SLICE_MANIFESTS):
                remove_file(path)
            remove_file(self.folder / MANIFEST)  # last, so that a call which is killed before is repeated
        self._begun, self._had_manifest, self.complete = True, False, False

    def write(self, index: int, rows: Sequence[dict[str, Any]]) -> None:
        """Write part `index`; it is whole or absent. Rows are checked against the kind's schema."""
        self.write_table(index, to_table(self.kind, list(rows)))

    def write_table(self, index: int, table: pa.Table) -> None:
        """`write` of rows that have been checked."""
        path = self.part(index)
        entry: dict[str, Any] = {}

        def write(temporary: Path) -> None:
            write_part(temporary, table, origin=self._digest, group=index)
            entry.update(part_entry(temporary, name=path.name))

        # Begun when the part is on disk, so that a full disk costs nothing, and locked until the part has its name, so
        # that no other slice completes the shard in between.
        write_atomic(path, write, around=self._begun_and_locked)
        self._entries[index] = entry

    def part(self, index: int) -> Path:
        """The file of part `index`, whether it is there or not: `part-00007.parquet`."""
        return self.folder / f"part-{index:05d}.parquet"

    def parts(self) -> list[Path]:
        """The finished parts of this slice, in order."""
        return [self.part(index) for index in sorted(self.done)]

    def discard(self, path: Path) -> None:
        """Remove a part, and the manifest of its slice: the next call of that slice makes both again."""
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
    ) -> None:
        """Write the manifest; from here on the shard, or this slice of it, is complete. The last slice completes the
        shard. `tokenizer`: its fingerprint, if the shard has token ids. `check` raises if the counts of the whole shard
        are not acceptable.
        """
        parts = [self._entries[index] for index in sorted(self.done)]
        manifest = {
            **self._header,
            **self.origin.named(),
            "rows": sum(part["rows"] for part in parts),
            "counts": dict(counts or {}),
            **({} if tokenizer is None else {"tokenizer": tokenizer}),
            "parts": parts,
            "versions": {"rla": __version__, "pyarrow": pa.__version__},
        }
        with lock_folder(self.folder):
            if not self._had_manifest and self._is_joined():
                self.complete = True
                return
            self._begin()
            if self.slice.count > 1:
                write_record(self.slice.manifest(self.folder), self.kind, manifest | {"slice": str(self.slice)})
                manifest = self._joined_manifest()
            if manifest:
                check_parts(self.folder, manifest, whole=True)  # parts may have been brought here, or damaged since
                check(manifest["counts"])
                write_record(self.folder / MANIFEST, self.kind, manifest)
                self._tidy()
                self.complete = True

    def _is_joined(self) -> bool:
        """Whether another slice has completed the shard with exactly this slice's parts, which an earlier call had
        finished.
        """
        path = self.folder / MANIFEST
        found = optional_json(path) if self.slice.count > 1 else None
        if found is None or not self._is_own(found):
            return False
        parts = ((group_of(Path(part["name"])), part) for part in checked_manifest(path, found)["parts"])
        return {group: part for group, part in parts if self.slice.takes(group)} == self._entries

    def _joined_manifest(self) -> dict[str, Any]:
        """The whole's manifest: parts in order, counts added up; the rest is the first slice's. Empty if a slice has
        not written its manifest yet.
        """
        manifests = slice_manifests(self.folder, self.slice.count)
        there = [manifest for manifest in manifests.values() if manifest is not None]
        if len(there) < len(manifests):
            return {}
        for part, manifest in zip(manifests, there, strict=True):
            if not self._is_own(manifest):
                raise UserError(f"{part.manifest(self.folder)}: {self.origin.unlike(manifest)}; bring the right one")
        return {
            **{key: value for key, value in there[0].items() if key not in ("slice", CHECKSUM)},
            "rows": sum(one["rows"] for one in there),
            "counts": {key: sum(one["counts"][key] for one in there) for key in there[0]["counts"]},
            "parts": sorted((part for one in there for part in one["parts"]), key=lambda part: str(part["name"])),
        }

    def _tidy(self) -> None:
        """Remove from a complete folder the record of its start, and files that killed calls have left."""
        remove_file(self.folder / STARTED)
        for path in self.folder.glob(".*.tmp"):
            if _LEFT.fullmatch(path.name):
                with suppress(UserError):
                    remove_file(path)


def is_finished(folder: Path) -> bool:
    """Whether a shard is complete and no call has begun to replace it. Removes the record of its start if a killed call
    has left that.
    """
    if not is_complete(folder):
        return False
    keys = ("kind", "schema_version", *ORIGIN)
    with lock_folder(folder):  # a call that begins it again has both records for a moment
        done, begun = optional_json(folder / MANIFEST), optional_json(folder / STARTED)
        if done is None or (begun is not None and any(done.get(key) != begun.get(key) for key in keys)):
            return False
        with suppress(UserError):  # a folder that may only be read
            remove_file(folder / STARTED)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A shard of a single part."""

    folder: Path
    kind: str
    rows: Sequence[dict[str, Any]]
    counts: Mapping[str, Any] = field(default_factory=dict)


def write_shards(
    outputs: Sequence[Output], origin: Origin, *, overwrite: bool = False, tell: Tell = lambda text: None
) -> None:
    """Write shards that belong together. A complete one of the same origin is left as it is.

    Nothing is removed before all rows have been checked and every folder has been accepted. Then everything of another
    origin is removed before the first shard is written, so a call that ends here never leaves an old shard with a new
    one.
    """
    tables = [to_table(output.kind, list(output.rows)) for output in outputs]
    writers = [ShardWriter(one.folder, one.kind, origin, overwrite=overwrite, tell=tell) for one in outputs]
    left = [each for each in zip(writers, tables, outputs, strict=True) if not each[0].complete]
    for writer, _, _ in left:
        writer.begin()
    for writer, table, output in left:
        writer.write_table(0, table)
        writer.finish(output.counts)


def write_shard(
    folder: Path,
    kind: str,
    rows: Sequence[dict[str, Any]],
    origin: Origin,
    *,
    counts: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """`write_shards` of one."""
    write_shards([Output(folder=folder, kind=kind, rows=rows, counts=counts or {})], origin, overwrite=overwrite)
