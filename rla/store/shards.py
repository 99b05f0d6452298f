"""Writing shard folders: `_started.parquet`, then `part-*.parquet`, and last of all `_manifest.parquet`.

The first record names the kind of the shard and the digests of config and inputs that its parts are made from. Each
part is written under a temporary name and renamed. Its footer says which shard it is of:

    rla_origin   digest of the kind, schema version, config, inputs and seed of the shard
    rla_group    index of the group, which the file's name says too
    rla_keys     digest of the key columns

So a call that was killed is carried on by the same call: it reads the parts that are there, whose pages have
checksums, and makes those again that are damaged. The manifest names the size and SHA-256 of each part, which readers
compare.

A call holds the lock of its folder while it writes (`rla.store.atomic`). Slices write different parts, side by side;
they open the folder, name their parts and write the manifest one after the other (`lock_folder`).
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
from rla.store.atomic import WHOLE, Slice, lock_folder, refuse_others, remove_file, slices, unwritable, write_atomic
from rla.store.layout import rerun
from rla.store.reading import check_parts, group_of, opened_part, read_part, shard_parts
from rla.store.record import (
    CHECKSUM,
    MANIFEST,
    STARTED,
    Origin,
    UnreadableFile,
    checked_manifest,
    file_digest,
    optional_json,
    optional_record,
    read_regular,
    slice_count,
    slice_manifests,
    write_record,
)
from rla.store.schema import arrow_schema, load_schema, to_table
from rla.text import counted

KIND, VERSION, ORIGIN, GROUP, KEYS = "rla_kind", "rla_schema_version", "rla_origin", "rla_group", "rla_keys"
RECORDED = ("schema_version", "config_digest", "input_digests")  # keys that hardly anybody else's record has
SLICE_MANIFESTS = "_manifest-*-of-*.parquet"
OURS = r"part-\d{5,}\.parquet|_manifest(?:-\d+-of-\d+)?\.parquet|_started\.parquet"
LEFT = re.compile(rf"\.(?:{OURS})\.tmp")  # by a call that was killed
SHARD_FILE = re.compile(rf"{OURS}|{LEFT.pattern}")

Tell = Callable[[str], None]
Check = Callable[[Mapping[str, Any]], None]


class _ForeignPart(UserError):
    """A part that is whole and belongs elsewhere."""


def _keys_digest(kind: str, table: pa.Table) -> str:
    """16 hex digits of the key columns of a table, whose rows are in order."""
    columns = [table.column(name).to_pylist() for name in load_schema(kind)["key"]]
    return hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:16]


def write_part(path: Path, table: pa.Table, *, kind: str, origin: str, group: int) -> None:
    """A table of the kind's schema as the part of a group. The same rows give the same bytes."""
    with pq.ParquetWriter(path, table.schema, compression="zstd", write_page_checksum=True) as writer:
        if table.num_rows:  # the `datasets` library fails on a row group without rows, not on a file without groups
            writer.write_table(table)
        writer.add_key_value_metadata({ORIGIN: origin, GROUP: str(group), KEYS: _keys_digest(kind, table)})


def part_entry(path: Path, *, name: str | None = None) -> dict[str, Any]:
    """A part in a manifest: name, rows, bytes and SHA-256. `name`: its later name, if that is another one."""
    rows = pq.read_metadata(path).num_rows
    return {"name": name or path.name, "rows": rows, "bytes": path.stat().st_size, "sha256": file_digest(path)}


def _check_own(path: Path, kind: str, origin: str, *, whole: bool) -> None:
    """Check a part that an earlier call has finished: its footer, and with `whole` all its pages.

    Raises UserError for damage, and _ForeignPart if it is of another kind, origin or group.
    """
    with opened_part(path) as file:
        said = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
        columns = file.schema_arrow
    expected = {KIND: kind, VERSION: str(load_schema(kind)["version"]), ORIGIN: origin, GROUP: str(group_of(path))}
    differing = [key.removeprefix("rla_") for key, value in expected.items() if said.get(key) != value]
    if differing:
        raise _ForeignPart(f"{path}: a part of another {' and '.join(differing)}")
    if not columns.equals(arrow_schema(kind)):
        raise UserError(f"{path}: its columns are not those of its kind; {rerun(path)}")
    if whole and _keys_digest(kind, read_part(path)) != said.get(KEYS):
        raise UserError(f"{path}: not the keys that it was written with; {rerun(path)}")


def _foreign_files(folder: Path) -> list[Path]:
    """The files of a shard folder that `rla` did not write: all of them, unless a record or a part says otherwise.

    Parts that cannot be read are ours if they lie next to one that can.
    """
    ours = False
    strange: set[Path] = set()
    for path in shard_parts(folder):
        with suppress(UserError), opened_part(path) as file:
            if KIND.encode() in (file.metadata.metadata or {}):
                ours = True
            else:
                strange.add(path)
    for record in (folder / MANIFEST, folder / STARTED):  # one that is damaged still holds a key of ours
        ours = ours or (record.is_file() and any(f'"{key}"'.encode() in read_regular(record) for key in RECORDED))
    if not ours:
        return sorted(folder.iterdir())
    return sorted(strange | {path for path in folder.iterdir() if not SHARD_FILE.fullmatch(path.name) or path.is_dir()})


class ShardWriter:
    """Writes one shard folder, or a slice of it. `done`: the indices of this slice's parts that are finished.

    A folder of the same origin is carried on. Any other one is refused, or with `overwrite` replaced: parts of this
    origin are kept, and everything else that `rla` wrote is removed. A shard of another origin is there, whole, until
    the first part of the new one is on disk (`clear`). A slice replaces a folder only for the call that started it. A
    folder that was begun in another number of slices is refused too; with `overwrite` its parts are kept and the rest
    is divided again.

    `tell` is told about damaged parts, which are made again, and about parts that are removed. `complete`: there is
    nothing left to write. `replaces`: there is a shard of another origin that this call, or its slices, will replace.
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
        later: bool = False,
    ) -> None:
        """`later`: nothing is written or removed before `clear`."""
        self.folder, self.kind, self.origin, self.slice = folder, kind, origin, part
        self._header = {"kind": kind, "schema_version": load_schema(kind)["version"], **origin.as_json()}
        self._digest = hashlib.sha256(json.dumps(self._header, sort_keys=True).encode()).hexdigest()[:16]
        self._tell = tell
        self.complete = self.replaces = False
        self._stale = False  # the folder holds something that is to be replaced
        self._new, self._later, self._overwrite = False, later, overwrite
        self._entries: dict[int, dict[str, Any]] = {}
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder}: a file, where a folder is to be; choose another name")
        with self._alone():
            self._open(overwrite=overwrite)
            if self.complete:
                self._tidy()
            elif not later:
                self._begin_or_continue()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Until the block ends, no other slice opens the folder, names a part or joins."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.folder, error) from None
        with lock_folder(self.folder):
            yield

    @property
    def done(self) -> Set[int]:
        return self._entries.keys()

    def _begin_or_continue(self) -> None:
        if self._new:
            self._begin()
        if self._stale and not self.replaces:
            self._clear()
        else:
            others = self._overwrite and self.slice.index == 0
            self._entries = self._kept(overwrite=self._overwrite, others=others)

    def _open(self, *, overwrite: bool) -> None:
        """Find out how this call may go on. Raises UserError if it may not."""
        try:
            flaw = self._flaw()
        except UnreadableFile:
            raise
        except UserError as error:  # a record or a part of a complete shard is damaged
            flaw = str(error)
        if flaw is None:
            return
        told = self.replaces and self.slice.replaces
        if not (overwrite or told):
            raise UserError(flaw)
        if not (self.slice.alone or told):
            raise UserError(
                f"{flaw}; and a slice does not replace a folder that others may be writing to: remove it, then call "
                "the slices without --overwrite"
            )
        refuse_others(self.folder, _foreign_files(self.folder))
        self._stale = True

    def _flaw(self) -> str | None:
        """Why this call cannot go on with the folder as it is."""
        found = optional_record(self.folder, MANIFEST) or optional_record(self.folder, STARTED)
        if found is None:
            if set(self.folder.glob("*.parquet")).difference(self.folder.glob(SLICE_MANIFESTS)):
                return f"{self.folder}: holds Parquet files of unknown origin; use --overwrite or another folder"
            self._new = True
            return None
        path, record = found
        if not self._is_own(record):
            self.replaces = True
            return f"{self.folder}: {self._unlike(record)}; rerun with --overwrite or choose another folder"
        if path.name == MANIFEST:
            check_parts(self.folder, checked_manifest(path, record), whole=True)
            self.complete = True
        elif (count := slice_count(path, record)) != self.slice.count:
            return (
                f"{self.folder}: begun in {count} slice{'s' * (count > 1)}, this call would make {self.slice.count}; "
                f"go on with {f'--slice i/{count}' if count > 1 else 'an undivided call'}, or, when nothing else "
                "writes to it, divide what is left anew: --overwrite, with --workers or without"
            )
        return None

    def _is_own(self, record: Mapping[str, Any]) -> bool:
        return all(record.get(key) == value for key, value in self._header.items())

    def _unlike(self, record: Mapping[str, Any]) -> str:
        for key in ("kind", "schema_version"):
            if record.get(key) != self._header[key]:
                return f"its {key} is {shown_value(record.get(key))}, this call makes {shown_value(self._header[key])}"
        return self.origin.unlike(record)

    def _begin(self) -> None:
        division = {} if self.slice.count == 1 else {"slices": self.slice.count}
        write_record(self.folder / STARTED, self.kind, {**self._header, **self.origin.named(), **division})

    def _kept(self, *, overwrite: bool, others: bool) -> dict[int, dict[str, Any]]:
        """Group -> manifest entry of this slice's parts that an earlier call has finished.

        Damaged parts are removed, and foreign ones with `overwrite`, or else refused; nothing is removed from a shard
        that is to be replaced later. `others`: the same for parts of other slices, of which the footer is read alone.
        """
        found: dict[int, dict[str, Any]] = {}
        foreign = 0
        for path in shard_parts(self.folder):
            mine = self.slice.takes(group_of(path))
            try:
                if mine or others:
                    _check_own(path, self.kind, self._digest, whole=mine)
                if mine:
                    found[group_of(path)] = part_entry(path)
            except UserError as error:
                if isinstance(error, UnreadableFile):  # it may be whole, so it stays
                    raise
                if self._stale:
                    continue
                if not isinstance(error, _ForeignPart):
                    self._tell(f"{str(error).partition(';')[0]}; it is made again")
                elif overwrite:
                    foreign += 1
                else:
                    raise _ForeignPart(f"{error}; remove it, or call the stage with --overwrite") from None
                remove_file(path)
        if foreign:
            self._tell(f"{self.folder}: replaces {counted(foreign, 'part')} of another origin")
        return found

    def clear(self) -> None:
        """Do now what a `later` writer has put off, and remove the old shard if one is still to be replaced."""
        if not (self._stale or self._later):
            return
        with self._alone():
            if self._later and not (self._stale or self.complete):
                self._begin_or_continue()
            self._later = False
            self._clear()

    def _clear(self) -> None:
        if not self._stale:
            return
        refuse_others(self.folder, _foreign_files(self.folder))  # somebody may have put a file there since
        self._begin()  # first, so that a full disk costs nothing
        self._stale = False
        self._entries = self._kept(overwrite=True, others=True)
        for path in self.folder.glob(SLICE_MANIFESTS):
            own = False
            with suppress(UserError):  # a damaged one is not
                own = self._is_own(optional_json(path) or {})
            if self.slice.alone or not own:
                remove_file(path)
        remove_file(self.folder / MANIFEST)  # last, so that a call which is killed before is repeated

    def reopen(self) -> None:
        """Go on with a complete shard, of which a part is to be made again."""
        with self._alone():
            self._begin()
            remove_file(self.folder / MANIFEST)
            self.complete = False
            self._entries = self._kept(overwrite=False, others=False)

    def write(self, index: int, rows: Sequence[dict[str, Any]]) -> None:
        """Write part `index`; it is whole or absent. Rows are checked against the kind's schema."""
        self.write_table(index, to_table(self.kind, list(rows)))

    def write_table(self, index: int, table: pa.Table) -> None:
        """`write` of rows that have been checked."""
        path = self.part(index)
        entry: dict[str, Any] = {}

        def write(temporary: Path) -> None:
            write_part(temporary, table, kind=self.kind, origin=self._digest, group=index)
            entry.update(part_entry(temporary, name=path.name))

        @contextmanager
        def named() -> Iterator[None]:
            with self._alone():
                self._clear()  # the part is on disk: a full disk has cost nothing
                yield

        write_atomic(path, write, around=named)
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
        joins: bool = True,
    ) -> None:
        """Write the manifest; from here on the shard, or this slice of it, is complete. The last slice completes the
        shard, with `joins`. `tokenizer`: its fingerprint, if the shard has token ids. `check` raises
        if the counts of the whole shard are not acceptable.
        """
        self.clear()
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
        if self.slice.count == 1:
            self._complete(manifest, check)
        else:
            write_record(self.slice.manifest(self.folder), self.kind, manifest | {"slice": str(self.slice)})
            if joins:
                self.join(check)

    def join(self, check: Check = lambda counts: None) -> None:
        """Complete the shard if all slices have written their manifests."""
        with self._alone():
            manifests = slice_manifests(self.folder, self.slice.count)
            there = [manifest for manifest in manifests.values() if manifest is not None]
            if len(there) < len(manifests):
                return
            for part, manifest in zip(manifests, there, strict=True):
                if not self._is_own(manifest):
                    unlike = self.origin.unlike(manifest)
                    raise UserError(f"{part.manifest(self.folder)}: {unlike}; bring the right one")
            # The whole's manifest: parts in order, counts added up; the rest is the first slice's.
            parts = sorted((part for one in there for part in one["parts"]), key=lambda part: str(part["name"]))
            whole = {key: value for key, value in there[0].items() if key not in ("slice", CHECKSUM)}
            counts = {key: sum(one["counts"][key] for one in there) for key in there[0]["counts"]}
            rows = sum(part["rows"] for part in parts)
            self._complete(whole | {"rows": rows, "counts": counts, "parts": parts}, check)

    def _complete(self, manifest: dict[str, Any], check: Check) -> None:
        check(manifest["counts"])
        check_parts(self.folder, manifest, whole=True)  # parts may have been brought here, or damaged since
        write_record(self.folder / MANIFEST, self.kind, manifest)
        self._tidy()
        self.complete = True

    def _tidy(self) -> None:
        """Remove from a complete folder the record of its start, and files that killed calls have left."""
        remove_file(self.folder / STARTED)
        for path in self.folder.glob(".*.tmp"):
            if LEFT.fullmatch(path.name):
                with suppress(UserError):
                    remove_file(path)


def clear_started(folder: Path) -> None:
    """Remove the first record of a complete folder, if a call was killed before it could do so itself."""
    done, begun = optional_record(folder, MANIFEST), optional_record(folder, STARTED)
    if done and begun and all(done[1].get(key) == begun[1].get(key) for key in ("kind", "seed", *RECORDED)):
        with suppress(UserError):  # a folder that may only be read
            remove_file(begun[0])


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
    writers = [ShardWriter(one.folder, one.kind, origin, overwrite=overwrite, tell=tell, later=True) for one in outputs]
    for writer in writers:
        writer.clear()
    for output, table, writer in zip(outputs, tables, writers, strict=True):
        if not writer.complete:
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
