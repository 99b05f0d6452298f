"""Files that are whole or absent, at whatever instant the process dies and even if the disk is full; and the right to
write an output, which one call has at a time, or the slices of a shard side by side.

A call holds the lock of each of its outputs: `.<name>.lock` next to it, a POSIX record lock. The system releases such a
lock when the process dies, however it dies, and child processes do not inherit it. A second call is refused.

Slice i of n takes the groups whose index leaves i - 1 when divided by n. Slices share the lock of the folder, and each
has one of its own.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.text import whole_text


def write_atomic(
    path: Path,
    write: Callable[[Path], object],
    *,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Call `write(temporary)`, flush the file to disk and rename it to `path`.

    Calls that write the same file, such as the parameters of a run, wait for each other. `around` is entered for the
    rename alone. Raises UserError if the system refuses: a full disk, a quota, a folder without the right to write.
    """

    def lock(descriptor: int) -> None:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)

    temporary = path.with_name(f".{path.name}.tmp")
    try:
        descriptor = _acquired(temporary, lock)
        try:
            write(temporary)
            os.fsync(descriptor)
            with around():
                try:
                    temporary.replace(path)
                except FileNotFoundError:
                    if not is_still(path, descriptor):  # NFS repeats a lost request, and then finds no file to rename
                        raise
        finally:
            try:
                with suppress(OSError):
                    if is_still(temporary, descriptor):
                        temporary.unlink()
            finally:  # an interrupt here must not leave the file locked
                os.close(descriptor)
    except OSError as error:
        raise unwritable(path, error) from None


def write_json(path: Path, data: Any) -> None:
    """`data` as indented JSON, atomically; keys keep their order."""
    write_text(path, json_text(data))


def write_text(path: Path, text: str) -> None:
    """A text file, atomically; halves of surrogate pairs are replaced."""
    write_content(path, whole_text(text).encode())


def write_content(path: Path, content: bytes) -> None:
    """A file with this content, atomically."""
    write_atomic(path, lambda temporary: temporary.write_bytes(content))


def json_text(data: Any) -> str:
    """The text of all JSON files: indented, keys in their order, no NaN."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def unwritable(path: Path, error: OSError) -> UserError:
    """The system's reason in one line with its remedy."""
    return UserError(
        f"{path}: cannot be written ({error.strerror or error}); "
        "mend that and call the command again: what is finished is kept"
    )


def is_still(path: Path, descriptor: int) -> bool:
    """Whether the open file has this name."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _acquired(path: Path, lock: Callable[[int], None]) -> int:
    """The descriptor of the file `path`, which is made if it is missing, once `lock` has locked it.

    Raises the errors of `lock`. A link in the place of the file is removed, and never followed.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)  # a call that has written nothing removes the folders it made
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            path.unlink(missing_ok=True)
            continue
        try:
            lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if is_still(path, descriptor):
            return descriptor
        os.close(descriptor)  # the process that held the lock has renamed or removed this file: a new one is made


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Wait until no other call is in such a block for `folder`, if the file system has locks.

    Raises UserError if the folder may not be opened.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise unwritable(folder, error) from None
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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


def slices(count: int) -> list[Slice]:
    return [Slice(index=index, count=count) for index in range(1, count + 1)]


@contextmanager
def lock_outputs(places: Sequence[Path], part: Slice = WHOLE, *, wait: bool = False) -> Iterator[None]:
    """Hold the locks of `places`, or of the slice `part` of them, until the block ends.

    Raises UserError if another call holds one of them, unless this call is to `wait` for it. If a place cannot be
    written to, or its file system has no locks, there is nothing to hold.
    """
    shared = fcntl.LOCK_SH if part.count > 1 else fcntl.LOCK_EX
    with ExitStack() as held:
        for place in (one.resolve() for one in places):
            held.enter_context(_locked(place, "", shared if wait else shared | fcntl.LOCK_NB))
            if part.count > 1:
                held.enter_context(_locked(place, part.tag, fcntl.LOCK_EX | fcntl.LOCK_NB))
        yield


@contextmanager
def _locked(place: Path, tag: str, how: int) -> Iterator[None]:
    path = place.with_name(f".{place.name}{tag}.lock")
    new = [parent for parent in path.parents if not parent.exists()]

    def lock(descriptor: int) -> None:
        try:
            fcntl.lockf(descriptor, how)
        except PermissionError:  # how some systems say that the lock is held
            raise BlockingIOError from None

    descriptor = None
    try:
        descriptor = _acquired(path, lock)
        os.truncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
    except BlockingIOError:
        holder = "just started"
        with suppress(OSError):
            holder = path.read_text()[:200] or holder
        raise UserError(f"{place}: another call is writing it ({holder}); wait for its end, or end it") from None
    except OSError:  # read-only, or a file system without locks: the call itself names the file that it cannot write
        pass
    try:
        yield
    finally:
        if descriptor is not None:
            try:
                with suppress(OSError):
                    if how & fcntl.LOCK_SH:  # other slices may still hold it: then they remove the file
                        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
            finally:
                os.close(descriptor)
        for parent in new:  # made for the lock of a call that has written nothing
            with suppress(OSError):
                parent.rmdir()
