"""Files that are either whole or absent, whatever instant the process dies at, and whether or not the disk is full."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rla.errors import UserError


def write_atomic(path: Path, write: Callable[[Path], None], *, writer: str = "") -> None:
    """Call `write(temporary)` then rename it to `path`, both flushed to disk.

    Processes that may write the same file at the same time each name themselves as `writer`. Raises UserError where
    the system refuses: a full disk, a quota, a folder that may not be written.
    """
    temporary = _aside(path, writer)
    try:
        _flushed(temporary, write)
        temporary.replace(path)
    except OSError as error:
        raise _unwritable(path, temporary, error) from None


def write_json(path: Path, data: Any, *, writer: str = "") -> None:
    """`data` as indented JSON, atomically; keys keep their order."""
    write_text(path, _text(data), writer=writer)


def write_text(path: Path, text: str, *, writer: str = "") -> None:
    """A text file, atomically."""
    write_atomic(path, lambda temporary: _write(temporary, text), writer=writer)


def create_json(path: Path, data: Any, *, writer: str = "") -> bool:
    """Write the file unless it is there; whether this call made it. Of several callers at once one makes it."""
    temporary = _aside(path, writer)
    try:
        _flushed(temporary, lambda place: _write(place, _text(data)))
        try:
            os.link(temporary, path)  # unlike a rename it fails where the name is taken
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            if path.exists():
                return False
            temporary.replace(path)
        return True
    except OSError as error:
        raise _unwritable(path, temporary, error) from None
    finally:
        _forget(temporary)


def clear_aside(path: Path, *, writer: str = "") -> None:
    """Remove what a call that was killed has left of writing `path`."""
    _forget(_aside(path, writer))


def _aside(path: Path, writer: str) -> Path:
    return path.with_name(f".{path.name}{writer}.tmp")


def _flushed(temporary: Path, write: Callable[[Path], None]) -> None:
    temporary.parent.mkdir(parents=True, exist_ok=True)
    write(temporary)
    with temporary.open("rb") as handle:
        os.fsync(handle.fileno())


def _unwritable(path: Path, temporary: Path, error: OSError) -> UserError:
    """The error to raise; what was written of the file gives its space back."""
    _forget(temporary)
    return UserError(
        f"{path}: cannot be written ({error.strerror or error}); "
        "mend that and call the command again: what is finished is kept"
    )


def _forget(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        temporary.unlink()


def _text(data: Any) -> str:
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _write(path: Path, text: str) -> None:
    path.write_text(text)
