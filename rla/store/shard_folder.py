"""The states of a shard folder, and which of them a call may go on in.

*Started*: `_started.parquet` names the digests of config and inputs that its parts belong to. *Growing*: parts appear,
each written aside and renamed. *Complete*: `_manifest.parquet` lists the parts with their sizes and digests. A call of
the same origin goes on. One of another is refused, or takes the folder over with `overwrite`: what is of its own origin
stays, the rest that `rla` wrote goes, and a folder that holds anything else is left as it is. The call removes the rest
when it has written its first part, so a call that fails before leaves the folder as it was. A call that starts slices
tells each of them which record they replace, and the first slice that has a part takes the folder over. Whoever takes
it over holds the lock of the folder and looks once more what is there: since the call began, another one may have
finished a shard.

Slices of a shard look at the same folder at the same time. A part that one of them has read may be replaced by another
one before it is removed. So parts get their names, and lose them, under the lock of the folder, and a part is removed
only while its name is that of the file which was read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from rla.config.load import shown_value
from rla.errors import UserError
from rla.store.aside import alone_in
from rla.store.atomic import clear_stale
from rla.store.enclosed import create_record, write_record
from rla.store.origin import Origin
from rla.store.parts import ForeignPart, check_belonging, checked_entry, group_of, origin_digest, shard_parts
from rla.store.reading import damaged
from rla.store.regular import read_regular
from rla.store.removing import foreign_files, refuse_others, remove_file
from rla.store.schema import load_schema
from rla.store.sizes import counted
from rla.store.slices import (
    MANIFEST,
    STARTED,
    Slice,
    optional_json,
    optional_record,
    record_digest,
    sealed,
    slice_count,
)

Tell = Callable[[str], None]


def made_again(error: UserError) -> str:
    """What is told of a part that is damaged."""
    return f"{str(error).partition(';')[0]}; it is made again"


def part_state(path: Path) -> tuple[int, ...] | None:
    """What differs once another file has got the name; its time tells where the system has given a number anew."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


RECORDED = {"kind", "schema_version", "config_digest", "input_digests"}  # keys of every record of ours
SLICE_MANIFESTS = "_manifest-*-of-*.parquet"


class FolderState(StrEnum):
    """What a call finds, as far as it may go on."""

    NEW = "new"
    GROWING = "growing"
    COMPLETE = "complete"
    REPLACED = "replaced"  # by this call


class ShardFolder:
    """A folder as a call sees it that would make the slice `part` of a shard of this kind and origin."""

    def __init__(self, place: Path, kind: str, made_from: Origin, part: Slice) -> None:
        self.place, self.kind, self.made_from, self.slice = place, kind, made_from, part
        # what the records of a shard begin with, and what each of its parts names a digest of
        self.header = {"kind": kind, "schema_version": load_schema(kind)["version"], **made_from.as_json()}
        self.origin = origin_digest(self.header)
        self.other: str | None = None  # the digest of the record by which the shard here is one of another origin
        self._seen: set[str | None] = set()  # digests of the records that this call has found
        self._recorded = True  # one of them says that `rla` wrote the folder

    def state(self, *, overwrite: bool) -> FolderState:
        """Reads only. Raises UserError where this call may not write here."""
        if self.place.exists() and not self.place.is_dir():
            raise UserError(f"{self.place}: a file, where a folder is to be; choose another name")
        self._seen = set(map(record_digest, self._records()))
        try:
            found = self._found()
        except UserError:  # a record that is damaged
            if not overwrite:
                raise
            return self._replaced(recorded=any(map(damaged_record, self._records())))
        if found is None and set(self.place.glob("*.parquet")).difference(self.slice_records()):
            found = self._found()  # another slice may have begun it in this moment
            if found is None and not overwrite:
                raise UserError(
                    f"{self.place}: holds Parquet files of unknown origin; use --overwrite or another folder"
                )
            if found is None:
                return self._replaced(recorded=False)
        if found is None:
            return FolderState.NEW
        path, record = found
        if not self._is_own(record):
            self.other = record_digest(path)
            if self.other is not None and self.other == self.slice.replaces:
                return FolderState.REPLACED
            if not overwrite:
                raise UserError(
                    f"{self.place}: {self._unlike(record)}; rerun with --overwrite or choose another folder"
                )
            return self._replaced(recorded=RECORDED.issubset(record))
        if path.name == MANIFEST:
            whole = not damaged(self.place, record, tolerate=overwrite)
            return FolderState.COMPLETE if whole else self._replaced(recorded=True)
        try:
            count = slice_count(path, record)
        except UserError:
            if not overwrite:
                raise
            return self._replaced(recorded=True)
        if count != self.slice.count:
            self._refuse_division(count, overwrite=overwrite)
        return FolderState.GROWING

    def _is_own(self, record: Mapping[str, Any]) -> bool:
        return all(record.get(key) == value for key, value in self.header.items())

    def _unlike(self, record: Mapping[str, Any]) -> str:
        for key in ("kind", "schema_version"):
            if record.get(key) != self.header[key]:
                return f"its {key} is {shown_value(record.get(key))}, this call makes {shown_value(self.header[key])}"
        return self.made_from.unlike(record)

    def _replaced(self, *, recorded: bool) -> FolderState:
        if not self.slice.alone:
            raise UserError(
                f"{self.place}: a slice does not replace a folder that others may be writing to; "
                "remove it, then call the slices without --overwrite"
            )
        self._recorded = recorded
        self._refuse_others()
        return FolderState.REPLACED

    def _refuse_others(self) -> None:
        refuse_others(self.place, foreign_files(self.place, recorded=self._recorded))

    def _found(self) -> tuple[Path, dict[str, Any]] | None:
        """The record that tells the folder's state. Another slice may complete it meanwhile: its manifest is looked for
        twice.
        """
        for name in (MANIFEST, STARTED, MANIFEST):
            found = optional_record(self.place, name)
            if found is not None:
                return found
        return None

    def _records(self) -> list[Path]:
        return [self.place / name for name in (MANIFEST, STARTED) if (self.place / name).is_file()]

    def slice_records(self) -> list[Path]:
        """The manifests of slices."""
        return list(self.place.glob(SLICE_MANIFESTS))

    def _refuse_division(self, count: int, *, overwrite: bool) -> None:
        """UserError unless this call may take over the parts of a folder that was begun in `count` slices."""
        if not (overwrite and self.slice.alone):
            raise UserError(
                f"{self.place}: begun in {count} slice{'s' * (count > 1)}, this call would make {self.slice.count}; "
                f"go on with {f'--slice i/{count}' if count > 1 else 'an undivided call'}, or, when nothing else "
                "writes to it, divide what is left anew: --overwrite, with --workers or without"
            )

    def begin(self) -> None:
        """Write the record of the start, unless another slice is first."""
        create_record(self.place / STARTED, self.kind, self._started(), writer=self.slice.tag)

    def divide(self) -> None:
        """Take over a growing folder that was begun in another number of slices."""
        _, started = optional_record(self.place, STARTED) or (None, {})
        if started.get("slices", 1) != self.slice.count:
            for path in self.slice_records():
                remove_file(path)
            write_record(self.place / STARTED, self.kind, self._started(), writer=self.slice.tag)

    def _started(self) -> dict[str, Any]:
        division = {} if self.slice.count == 1 else {"slices": self.slice.count}
        return sealed({**self.header, **self.made_from.named(), **division})

    def take_over(self, tell: Tell) -> None:
        """Keep the parts that name this origin, remove all else. The new record comes first, so a full disk costs
        nothing; the old ones go last, so a call that is killed is repeated. A shard of this origin that an equal call
        has finished meanwhile stays as it is. UserError for one of a third origin, and for what `rla` did not write.
        """
        with alone_in(self.place):
            if self._finished_meanwhile():
                return
            self._refuse_others()
            write_record(self.place / STARTED, self.kind, self._started(), writer=self.slice.tag)
            self._remove_others(tell)
            slices = [path for path in self.slice_records() if self.slice.alone or not self._names_own(path)]
            for path in [*slices, *(path for path in self._records() if path.name != STARTED)]:
                remove_file(path)

    def _finished_meanwhile(self) -> bool:
        """Whether an equal call has completed the shard since this one looked. UserError where another began one."""
        for path in self._records():
            if record_digest(path) in (None, *self._seen):  # None: another slice has removed it
                continue
            if not self._names_own(path):
                raise UserError(
                    f"{self.place}: another call has begun a shard here since this one began, so it is not replaced; "
                    "call this one again, or choose another folder"
                )
            if path.name == MANIFEST:
                return True
        return False

    def _kept(self, path: Path, tell: Tell, *, whole: bool, overwrite: bool) -> dict[str, Any] | None:
        """The entry of a part that stays (empty where it is not read as a `whole`), None for one that went."""
        seen = part_state(path)
        try:
            if whole:
                return checked_entry(path, self.kind, self.origin)
            check_belonging(path, self.kind, self.origin)
        except ForeignPart as error:
            if not overwrite:
                raise ForeignPart(f"{error}; remove it, or call the stage with --overwrite") from None
            said = f"{error}; it is removed"
        except UserError as error:
            said = made_again(error)
        else:
            return {}
        with alone_in(path.parent):
            if part_state(path) == seen:
                tell(said)
                remove_file(path)
                return None
        return self._kept(path, tell, whole=whole, overwrite=overwrite)  # another slice has put its part there

    def _remove_others(self, tell: Tell) -> None:
        """Remove the parts of another origin, and damaged ones. The caller has the lock."""
        foreign = 0
        for path in shard_parts(self.place):
            try:
                check_belonging(path, self.kind, self.origin)
                continue
            except ForeignPart:
                foreign += 1
            except UserError as error:
                tell(made_again(error))
            remove_file(path)
        if foreign:
            tell(f"{self.place}: replaces {counted(foreign, 'part')} of another origin")

    def _names_own(self, path: Path) -> bool:
        try:
            return self._is_own(optional_json(path) or {})
        except UserError:  # damaged
            return False

    def own_entries(self) -> dict[int, dict[str, Any]]:
        """`entries` of a folder that is to be replaced: nothing is removed yet."""
        found = {}
        for path in shard_parts(self.place):
            if self.slice.index > 0 and self.slice.takes(group_of(path)):
                with contextlib.suppress(UserError):
                    found[group_of(path)] = checked_entry(path, self.kind, self.origin)
        return found

    def entries(self, tell: Tell, *, overwrite: bool) -> dict[int, dict[str, Any]]:
        """Group -> what a manifest says of its part, of this slice's parts that an earlier call has finished.

        Damaged ones are removed, and so are foreign ones with `overwrite`. The call that starts all slices looks at
        footers alone.
        """
        found: dict[int, dict[str, Any]] = {}
        for path in shard_parts(self.place):
            mine = self.slice.index > 0 and (self.slice.count == 1 or self.slice.takes(group_of(path)))
            if mine or (overwrite and self.slice.index == 0):
                entry = self._kept(path, tell, whole=mine, overwrite=overwrite)
                found |= {group_of(path): entry} if entry else {}
        return found

    def tidy(self) -> None:
        """Remove what a complete folder needs no more, and what killed calls have left of writing it."""
        remove_file(self.place / STARTED)
        for name in ("part-*.parquet", "_manifest*.parquet", STARTED):
            for left in self.place.glob(f".{name}*.tmp"):
                clear_stale(left)


def clear_started(folder: Path) -> None:
    """Remove the first record of a complete folder, which a call leaves that was killed before it could."""
    done, begun = optional_record(folder, MANIFEST), optional_record(folder, STARTED)
    if done and begun and all(done[1].get(key) == begun[1].get(key) for key in (*RECORDED, "seed")):
        with contextlib.suppress(UserError):  # a folder that may only be read
            remove_file(begun[0])


def damaged_record(path: Path) -> bool:
    """Whether what is left of a file tells that it was a record of ours: it holds a key that others hardly have."""
    content = read_regular(path)
    return any(f'"{key}"'.encode() in content for key in RECORDED - {"kind"})
