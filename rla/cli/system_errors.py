"""What the operating system refuses, in one line: a full disk, a folder that may not be written, a name too long.

Most files are written by `rla.store.atomic`, which says so itself. Checkpoints are written by libraries, and each has
errors of its own: those in Rust are told by the number that they end with.
"""

from __future__ import annotations

import errno
import os
import re
import shutil

REFUSALS = {
    getattr(errno, name)
    for name in (
        *("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "EFBIG", "EIO", "ESTALE", "ENAMETOOLONG"),
        *("ENOTDIR", "EISDIR", "ELOOP", "EMFILE", "ENFILE", "EBUSY", "EEXIST", "ENOTEMPTY"),
    )
}
NUMBERED = re.compile(r"\(os error (\d+)\)|\[errno (\d+)\]", re.IGNORECASE)
REMEDY = "mend that and call the command again: what is finished is kept"


def system_refusal(error: BaseException) -> str | None:
    """What the system refused and the remedy; None for an error that is none of the system's refusals."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        _, target, reason = error.args[0][0]
        return f"{target}: {reason}; {REMEDY}"
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := NUMBERED.search(str(error))):
        number = int(found[1] or found[2])
    renamed = isinstance(error, OSError) and number == errno.ENOENT and error.filename2 is not None  # as NFS answers
    if number is None or (number not in REFUSALS and not renamed):
        return None
    place = error.filename2 or error.filename if isinstance(error, OSError) else None
    where = f"{os.fsdecode(place)}: " if isinstance(place, str | bytes | os.PathLike) else ""
    return f"{where}the system refuses it ({os.strerror(number)}); {REMEDY}"
