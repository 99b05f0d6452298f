"""Files that are either whole or absent, whatever instant the process dies at, and whether or not the disk is full."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.texts import whole_text


def write_atomic(
    path: Path,
    write: Callable[[Path], None],
    *,
    writer: str = "",
    around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> None:
    """Call `write(temporary)` then rename it to `path`, both flushed to disk. `around`: entered for the rename alone.

    Slices that write the same file at the same time each name themselves as `writer`; equal calls wait for each other.
    Raises UserError where the system refuses: a full disk, a quota, a folder that may not be written.
    """
    temporary = _aside(path, writer)
    try:
        with _alone(temporary) as descriptor:
            _flushed(temporary, write, descriptor)
            with around():
                try:
                    temporary.replace(path)
                except FileNotFoundError:
                    if not _is_still(path, descriptor):  # NFS answers so if it is asked twice for what it has done
                        raise
    except OSError as error:
        raise unwritable(path, error) from None


def write_json(path: Path, data: Any, *, writer: str = "") -> None:
    """`data` as indented JSON, atomically; keys keep their order."""
    write_text(path, json_text(data), writer=writer)


def write_text(path: Path, text: str, *, writer: str = "") -> None:
    """A text file, atomically; halves of surrogate pairs are replaced."""
    write_content(path, whole_text(text).encode(), writer=writer)


def write_content(path: Path, content: bytes, *, writer: str = "") -> None:
    """A file with this content, atomically."""
    write_atomic(path, lambda temporary: _write(temporary, content), writer=writer)


def create_file(path: Path, content: bytes, *, writer: str = "") -> bool:
    """Write the file unless it is there; whether this call made it. Of several callers at once one makes it."""
    temporary = _aside(path, writer)
    try:
        with _alone(temporary) as descriptor:
            _flushed(temporary, lambda place: _write(place, content), descriptor)
            return _named(temporary, path)
    except OSError as error:
        raise unwritable(path, error) from None


def _named(temporary: Path, path: Path) -> bool:
    """Give the file its name unless that is taken; whether this call did."""
    try:
        os.link(temporary, path)  # unlike a rename it fails where the name is taken
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if path.exists():
            return False
        temporary.replace(path)
    return True


def clear_aside(path: Path, *, writer: str = "") -> None:
    """Remove what a call that was killed has left of writing `path`."""
    clear_stale(_aside(path, writer))


def clear_stale(temporary: Path) -> None:
    """Remove a file that a call has left which was killed; one that another process is writing now stays."""
    with contextlib.suppress(OSError), temporary.open("rb") as handle:  # BlockingIOError: it is being written
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_still(temporary, handle.fileno()):
            temporary.unlink()


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """An empty folder that becomes `folder` when the block ends, and goes where it fails.

    Another process that is making the same is waited for. Raises UserError where `folder` exists, then or before.
    """
    with building(folder) as partial:
        if folder.exists():
            raise UserError(f"{folder} exists already: remove it or name another folder")
        yield partial
        partial.rename(folder)


@contextlib.contextmanager
def building(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder`, which goes when the block ends, unless that has renamed it.

    Another process that is building the same is waited for: what it has made is there when the block begins.
    """
    partial = _aside(folder, "")

    def opened() -> int:
        partial.mkdir(parents=True, exist_ok=True)
        return os.open(partial, os.O_RDONLY | os.O_DIRECTORY)

    with _locked(partial, opened) as descriptor:
        try:
            for left in partial.iterdir():  # of a call that was killed
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            yield partial
        finally:
            if _is_still(partial, descriptor):  # and not one that the next call has begun
                shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def _alone(temporary: Path) -> Iterator[int]:
    """The descriptor of a file that only this process writes until the block ends. What then still has that name is
    removed.
    """
    temporary.parent.mkdir(parents=True, exist_ok=True)
    with _locked(temporary, lambda: _opened(temporary)) as descriptor:
        try:
            yield descriptor
        finally:
            with contextlib.suppress(OSError):
                if _is_still(temporary, descriptor):
                    temporary.unlink()


@contextlib.contextmanager
def _locked(place: Path, opened: Callable[[], int]) -> Iterator[int]:
    """The descriptor of what lies at `place`, locked where the file system has locks. Who held it before may have
    renamed it: then it is opened again.
    """
    while True:
        descriptor = opened()
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                mine = _is_still(place, descriptor)
            except OSError:  # no locks here
                mine = True
            if mine:
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _opened(temporary: Path) -> int:
    """The descriptor of the file itself: a link that somebody has put there goes, and what it names stays."""
    while True:
        try:
            return os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            temporary.unlink(missing_ok=True)


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the name is that of the open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _aside(path: Path, writer: str) -> Path:
    return path.with_name(f".{path.name}{writer}.tmp")


def _flushed(temporary: Path, write: Callable[[Path], None], descriptor: int) -> None:
    write(temporary)
    os.fsync(descriptor)


def unwritable(path: Path, error: OSError) -> UserError:
    """What the system refused, in one line with its remedy."""
    return UserError(
        f"{path}: cannot be written ({error.strerror or error}); "
        "mend that and call the command again: what is finished is kept"
    )


def json_text(data: Any) -> str:
    """As all JSON files are written: indented, keys in their order, no NaN."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
