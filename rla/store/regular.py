"""Files that anyone may have put there: regular ones, of a bounded size.

A named pipe waits for a writer that never comes, a device has no end, and a file of gigabytes takes all memory.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rla.errors import UserError

LARGEST_RECORD = 1 << 28  # bytes of a JSON record: a manifest names its parts, some hundred bytes each
MIB = 1 << 20


def refuse_irregular(path: Path, most: int | None = None) -> int:
    """The size of a regular file in bytes. UserError for a pipe, a device, a socket, and for one beyond `most` bytes.

    Raises OSError if there is no such file. A folder is left to whoever opens it.
    """
    found = path.stat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise UserError(f"{path}: a pipe, a socket or a device, not a file; move it away")
    if most is not None and found.st_size > most:
        raise UserError(
            f"{path}: {found.st_size / MIB:,.0f} MiB, and at most {most / MIB:,.0f} MiB are read of such a file; "
            "replace it"
        )
    return found.st_size


def read_regular(path: Path) -> bytes:
    """The content of a regular file of at most `LARGEST_RECORD` bytes. Raises as `refuse_irregular` does.

    It is opened without waiting: between a look and the opening, a pipe may have taken the name.
    """
    refuse_irregular(path, LARGEST_RECORD)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        content = file.read(LARGEST_RECORD + 1)
    if len(content) > LARGEST_RECORD:
        raise UserError(f"{path}: grew beyond {LARGEST_RECORD / MIB:,.0f} MiB while it was read; replace it")
    return content
