"""The right to write an output: one call at a time has it, or the slices of a shard side by side.

A call holds the lock of each of its outputs: `.<name>.lock` beside it, a POSIX record lock. The system releases such a
lock when the process dies, however it dies, and child processes do not inherit it. A second call is refused.

Slice i of n takes the groups whose index leaves i - 1 when divided by n. Slices share the lock of the folder, and each
has one of its own. They may share a folder, or fill folders whose files are then put into one, because parts carry the
index of their group. A slice that has its parts writes `_manifest-<i>-of-<n>.parquet`; the last one also writes
`_manifest.parquet`, the same as an undivided call does.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.layout import making_call
from rla.store.record import CHECKSUM, MANIFEST, STARTED, checked_manifest, optional_json, optional_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Slice `index` of `count`. Index 0 stands for the call that starts all of them and plays nothing itself.

    `replaces`: the call that started this slice replaces a shard of another origin.
    """

    index: int = 1
    count: int = 1
    replaces: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Slice:
        """`2/4`. Raises UserError."""
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise UserError(f"--slice {text}: expected i/n with 1 <= i <= n, such as 2/4")
        return cls(index=int(found[1]), count=int(found[2]))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def alone(self) -> bool:
        """Whether no other call writes to the folder now: this one may replace it."""
        return self.index == 0 or self.count == 1

    @property
    def tag(self) -> str:
        """Distinguishes this slice's files from other slices'; empty for an undivided call."""
        return "" if self.count == 1 else f"-{self.index}-of-{self.count}"

    def takes(self, group: int) -> bool:
        """Whether the group belongs to this slice's share; shares differ by one group at most."""
        return group % self.count == self.index - 1

    def manifest(self, folder: Path) -> Path:
        return folder / f"_manifest{self.tag}.parquet"


WHOLE = Slice()
MOST_SLICES = 1 << 16
SHOWN = 3  # missing slices that an error names


@contextmanager
def lock_outputs(places: Sequence[Path], part: Slice = WHOLE, *, wait: bool = False) -> Iterator[None]:
    """Hold the locks of `places`, or of the slice `part` of them, until the block ends.

    Raises UserError if another call holds one of them, unless this call is to `wait` for it. If a place cannot be
    written to, or its file system has no locks, there is nothing to hold.
    """
    with ExitStack() as held:
        for place in (one.resolve() for one in places):
            sliced = part.count > 1
            how = fcntl.LOCK_SH if sliced else fcntl.LOCK_EX
            how |= 0 if wait else fcntl.LOCK_NB
            held.enter_context(_locked(place, place.with_name(f".{place.name}.lock"), how))
            if sliced:
                path = place.with_name(f".{place.name}{part.tag}.lock")
                held.enter_context(_locked(place, path, fcntl.LOCK_EX | fcntl.LOCK_NB))
        yield


@contextmanager
def _locked(place: Path, path: Path, how: int) -> Iterator[None]:
    new = [parent for parent in path.parents if not parent.exists()]
    descriptor = None
    try:
        descriptor = _acquired(path, how)
    except BlockingIOError:
        raise UserError(f"{place}: another call is writing it ({_holder(path)}); wait for its end, or end it") from None
    except OSError:  # read-only, or a file system without locks: the call itself names the file that it cannot write
        pass
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                if how & fcntl.LOCK_SH:  # other slices may still hold it: then they remove the file
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            os.close(descriptor)
        for parent in new:  # made for the lock of a call that has written nothing
            with suppress(OSError):
                parent.rmdir()


def _acquired(path: Path, how: int) -> int:
    """The descriptor of the locked file. Raises BlockingIOError if another process holds the lock."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)  # a call that has written nothing removes the folders it made
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.lockf(descriptor, how)
            if os.path.samestat(path.lstat(), os.fstat(descriptor)):
                os.truncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return descriptor
        except FileNotFoundError:
            pass
        except PermissionError:  # how some systems say that the lock is held
            os.close(descriptor)
            raise BlockingIOError from None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the call that held it has removed this file: a new one is made


def _holder(path: Path) -> str:
    try:
        return path.read_text()[:200] or "just started"
    except OSError:
        return "just started"


def slices(count: int) -> list[Slice]:
    return [Slice(index=index, count=count) for index in range(1, count + 1)]


def slice_manifests(folder: Path, count: int) -> dict[Slice, dict[str, Any] | None]:
    """The manifest of each of the `count` slices, None if it is not there yet. UserError for a malformed one."""
    found: dict[Slice, dict[str, Any] | None] = {}
    for part in slices(count):
        path = part.manifest(folder)
        record = optional_json(path)
        found[part] = manifest = None if record is None else checked_manifest(path, record)
        for name, number in manifest["counts"].items() if manifest else ():
            if not isinstance(number, int | float):
                raise UserError(f"{path}: its count {name} is no number; remove it, and call the stage of that slice")
    return found


def slice_count(path: Path, record: Mapping[str, Any]) -> int:
    """How many slices a folder was begun in, as the record in the file `path` says. UserError if it is not a number."""
    count = record.get("slices", 1)
    if type(count) is not int or not 1 <= count <= MOST_SLICES:
        raise UserError(f"{path}: no number of slices; remove this file, and call the stage with --overwrite")
    return count


def joined(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The manifest of the whole: parts of all slices in order, counts added up; the rest is the first slice's."""
    parts = sorted((part for manifest in manifests for part in manifest["parts"]), key=lambda part: str(part["name"]))
    counts = {key: sum(manifest["counts"][key] for manifest in manifests) for key in manifests[0]["counts"]}
    whole = {key: value for key, value in manifests[0].items() if key not in ("slice", CHECKSUM)}
    return whole | {"rows": sum(part["rows"] for part in parts), "counts": counts, "parts": parts}


def unfinished(folder: Path) -> UserError:
    """The error for a folder without a manifest, with the missing slices and the remedy."""
    remedy = f"run {making_call(folder)}, again if it was interrupted"
    if not folder.exists():
        return UserError(f"{folder} does not exist; {remedy}")
    started = optional_record(folder, STARTED)
    count = 1 if started is None else slice_count(*started)
    if count == 1:
        return UserError(f"{folder} is incomplete (no {MANIFEST}); {remedy}")
    missing = [part for part, manifest in slice_manifests(folder, count).items() if manifest is None]
    if not missing:
        return UserError(
            f"{folder}: its {count} slices are not joined; call {making_call(folder)} with --slice 1/{count}"
        )
    names = ", ".join(map(str, missing[:SHOWN])) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
    return UserError(
        f"{folder} is incomplete: no manifest of {'slice' if len(missing) == 1 else 'slices'} {names}; "
        f"call {making_call(folder)} with --slice {missing[0]}, or bring that slice's files here"
    )
