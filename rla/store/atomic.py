"""Files that are either whole or absent, at whatever instant the process dies, and even if the disk is full."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.texts import whole_text


def write_atomic(
    path: Path,
    write: Callable[[Path], object],
    *,
    around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> None:
    """Call `write(temporary)`, flush the file to disk and rename it to `path`.

    Calls that write the same file, such as the parameters of a run, wait for each other. `around` is entered for the
    rename alone. Raises UserError if the system refuses: a full disk, a quota, a folder without the right to write.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        with _alone(temporary) as descriptor:
            write(temporary)
            os.fsync(descriptor)
            with around():
                try:
                    temporary.replace(path)
                except FileNotFoundError:
                    if not is_still(path, descriptor):  # NFS repeats a lost request, and then finds no file to rename
                        raise
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


@contextlib.contextmanager
def _alone(temporary: Path) -> Iterator[int]:
    """The descriptor of a file that only this process writes until the block ends. Removed then unless renamed."""
    while True:
        descriptor = _opened(temporary)
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_still(temporary, descriptor):  # the process that held the lock may have renamed the file
                try:
                    yield descriptor
                finally:
                    with contextlib.suppress(OSError):
                        if is_still(temporary, descriptor):
                            temporary.unlink()
                return
        finally:
            os.close(descriptor)


def _opened(temporary: Path) -> int:
    """The descriptor of the file itself: a link in its place is removed, and never followed."""
    while True:
        try:
            return os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            temporary.unlink(missing_ok=True)


def is_still(path: Path, descriptor: int) -> bool:
    """Whether the open file has this name."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other call is in such a block for `folder`, if the file system has locks.

    Raises UserError if the folder may not be opened.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise unwritable(folder, error) from None
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError) -> UserError:
    """The system's reason in one line with its remedy."""
    return UserError(
        f"{path}: cannot be written ({error.strerror or error}); "
        "mend that and call the command again: what is finished is kept"
    )


def json_text(data: Any) -> str:
    """The text of all JSON files: indented, keys in their order, no NaN."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"
