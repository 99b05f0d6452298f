"""Files and folders that are whole or absent, at whatever instant the process dies; and the right to write an output.

A call holds the lock of each of its outputs: `.<name>.lock` next to it, a POSIX record lock. The system releases such a
lock when the process dies, however it dies, and child processes do not inherit it. A second call is refused.

Slice i of n takes the groups whose index leaves i - 1 when divided by n. Slices share the lock of the folder, and each
has one of its own. While one of them is at work, slices of another n are refused, because they would share its groups.

A file or folder that is being made is `.<name>.tmp`. A folder that is being replaced is `.<name>.old` until the new one
has its name, and `.<name>.tmp` while its files are removed: a kill leaves no half of a folder that could be read. Only
files that `rla` wrote are removed. A folder that holds anything else is refused before the first file goes.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.text import whole_text

SHOWN = 3  # files that an error names


def write_atomic(
    path: Path, write: Callable[[Path], object], *, around: Callable[[], AbstractContextManager[None]] = nullcontext
) -> None:
    """Call `write(temporary)`, flush the file to disk and rename it to `path`. `around` is entered for the rename.

    Calls that write the same file, such as the parameters of a run, wait for each other. Raises UserError if the system
    refuses: a full disk, a quota, a folder without the right to write.
    """
    temporary = _temporary(path)
    try:
        with _locked_file(temporary, _wait) as descriptor:
            try:
                write(temporary)
                os.fsync(descriptor)
                with around():
                    try:
                        temporary.replace(path)
                    except FileNotFoundError:
                        if not _is_still(path, descriptor):  # NFS repeats a lost request, then finds no file to rename
                            raise
            finally:
                with suppress(OSError):
                    if _is_still(temporary, descriptor):
                        temporary.unlink()
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


def unwritable(path: Path, error: OSError, *, verb: str = "written") -> UserError:
    """The system's reason in one line with its remedy."""
    return UserError(
        f"{path}: cannot be {verb} ({error.strerror or error}); "
        "mend that and call the command again: what is finished is kept"
    )


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the open file has this name."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _wait(descriptor: int) -> None:
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextmanager
def _locked_file(path: Path, lock: Callable[[int], None]) -> Iterator[int]:
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
            if _is_still(path, descriptor):
                yield descriptor
                return
        finally:  # otherwise the process that held the lock has renamed or removed this file: a new one is made
            os.close(descriptor)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Wait until no other call is in such a block for `folder`, which is made if it is missing. A file system without
    locks is not waited for.

    Raises UserError if the folder may not be made or opened.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise unwritable(folder, error) from None
    try:
        _wait(descriptor)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Slice `index` of `count`. Index 0 stands for the call that starts all of them and plays nothing itself.

    `started`: by that call.
    """

    index: int = 1
    count: int = 1
    started: bool = field(default=False, compare=False)

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
    def tag(self) -> str:
        """Distinguishes this slice's files from other slices'; empty for an undivided call."""
        return "" if self.count == 1 else f"-{self.index}-of-{self.count}"

    @property
    def replaces(self) -> bool:
        """Whether the call may replace a shard: no other call writes to the folder, or the one that started it may."""
        return self.count == 1 or self.index == 0 or self.started

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
    written to, or its file system has no locks, there is nothing to hold. A process may not nest locks of one place.
    """
    shared = fcntl.LOCK_SH if part.count > 1 else fcntl.LOCK_EX
    with ExitStack() as held:
        for place in (one.resolve() for one in places):
            held.enter_context(_locked(place, "", shared if wait else shared | fcntl.LOCK_NB))
            if part.count > 1:
                held.enter_context(_locked(place, part.tag, fcntl.LOCK_EX | fcntl.LOCK_NB))
                for tag in _tags_of_others(place, part):  # after the own one, so that one of two calls sees the other
                    with _locked(place, tag, fcntl.LOCK_SH | fcntl.LOCK_NB):
                        pass
        yield


def _tags_of_others(place: Path, part: Slice) -> list[str]:
    """The tags of lock files of slices that divide `place` by another number. A killed call may have left them."""
    name = re.compile(rf"\.{re.escape(place.name)}(-\d+-of-(\d+))\.lock")
    with suppress(OSError):
        found = map(name.fullmatch, os.listdir(place.parent))
        return [one[1] for one in found if one is not None and int(one[2]) != part.count]
    return []


@contextmanager
def _locked(place: Path, tag: str, how: int) -> Iterator[None]:
    path = place.with_name(f".{place.name}{tag}.lock")
    new = [parent for parent in path.parents if not parent.exists()]

    def lock(descriptor: int) -> None:
        try:
            fcntl.lockf(descriptor, how)
        except PermissionError:  # how some systems say that the lock is held
            raise BlockingIOError from None

    with ExitStack() as held:
        try:
            descriptor = held.enter_context(_locked_file(path, lock))
            held.callback(_remove_lock, path, descriptor)
            os.truncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
        except BlockingIOError:
            holder = "just started"
            with suppress(OSError):
                holder = path.read_text()[:200] or holder
            raise UserError(f"{place}: another call is writing it ({holder}); wait for its end, or end it") from None
        except OSError:  # read-only, full, or without locks: the call itself names the file that it cannot write
            pass
        try:
            yield
        finally:
            held.close()
            for parent in new:  # made for the lock of a call that has written nothing
                with suppress(OSError):
                    parent.rmdir()


def _remove_lock(path: Path, descriptor: int) -> None:
    with suppress(OSError):
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if other slices hold it: they remove the file
        path.unlink()


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """An empty folder next to `folder`, removed when the block ends unless the block has renamed it. This call, or the
    call that started it, holds the lock of `folder`.
    """
    partial = _temporary(folder)
    if os.path.lexists(partial):  # left by a call that was killed
        remove_folder(partial)
    partial.mkdir(parents=True)
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _temporary(place: Path) -> Path:
    return place.with_name(f".{place.name}.tmp")


def _old(place: Path) -> Path:
    return place.with_name(f".{place.name}.old")


def bring_back(place: Path) -> None:
    """Give the old folder its name back if a killed call has left neither it nor the new one. Nothing is removed. If
    the folder may not be moved, its reader reports that it is missing.
    """
    with suppress(OSError, UserError):
        if not os.path.lexists(place) and os.path.lexists(_old(place)):
            with lock_folder(place.parent):
                if not os.path.lexists(place):
                    _old(place).rename(place)


def settle(place: Path) -> None:
    """End the replacing that a killed call has begun: the old folder comes back, or goes if the new one is there.

    Raises UserError if it cannot come back.
    """
    bring_back(place)
    if os.path.lexists(_old(place)) and not os.path.lexists(place):
        raise UserError(
            f"{place}: cannot be moved back from {_old(place).name}, its only copy; move it, and call again"
        )
    partial = _temporary(place)
    if os.path.lexists(partial):
        remove_folder(partial)
    if os.path.lexists(_old(place)):
        _old(place).rename(partial)
        remove_folder(partial)


def take_place(partial: Path, place: Path, ours: Callable[[Path], bool]) -> None:
    """Rename `partial`, which `building` has made, to `place`, and remove the folder that was there. `ours`: whether
    `rla` may have written the file with this path below it.

    Raises UserError, and OSError if the system refuses, with the old folder in its place.
    """
    old = _old(place)
    with lock_folder(place.parent):  # so that no reader brings the old folder back too early
        if place.is_dir() and any(place.iterdir()):
            refuse_unlike(place, ours)
            place.rename(old)
        try:
            partial.rename(place)
        except BaseException as error:
            if os.path.lexists(old):
                old.rename(place)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise UserError(f"{place} exists already: remove it or name another folder") from None
            raise
    settle(place)


def refuse_unlike(folder: Path, ours: Callable[[Path], bool]) -> None:
    """UserError for a link, and for a folder with a file or link that is not `ours` (by its path below it)."""
    if folder.is_symlink():
        raise UserError(f"{folder}: a link, so it is not replaced; remove it, or choose another folder")
    files = [path for path in sorted(folder.rglob("*"), reverse=True) if path.is_symlink() or not path.is_dir()]
    refuse_others(folder, [path for path in files if not ours(path.relative_to(folder))])


def refuse_others(folder: Path, others: Sequence[Path]) -> None:
    """UserError if there are others."""
    if others:
        names = ", ".join(path.name for path in others[:SHOWN])
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        raise UserError(
            f"{folder}: holds what rla did not write ({names}{more}), so it is not replaced; "
            "move that away, or choose another folder"
        )


def remove_file(path: Path) -> None:
    """Raises UserError if the system refuses."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error, verb="removed") from None


def remove_folder(folder: Path) -> None:
    """A folder with all that is in it. Raises UserError if the system refuses."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise unwritable(Path(error.filename or folder), error, verb="removed") from None
