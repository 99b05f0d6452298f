"""Whether anything on a machine still works: then its screen stands still only because nobody lets it go on.

On a busy host an application waits longer for its turn than a screen has to stand still, and it draws afterwards. It
says something only of a machine that is the session's alone: elsewhere other programs of the user work for hours.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

BUSY = frozenset("RD")  # it computes or waits for its turn; it waits for a disk


def restless() -> bool:
    """Whether a thread of another process of this user works."""
    others = (int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid())
    return any(state in BUSY for process in others if owned(process) for state in thread_states(process))


def owned(process: int) -> bool:
    try:
        return os.stat(f"/proc/{process}").st_uid == os.geteuid()
    except OSError:
        return False


def thread_states(process: int) -> Iterator[str]:
    """Of each of its threads, by the letters of proc(5); none of what has ended meanwhile."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/stat", "rb") as file:
                yield file.read().rpartition(b")")[2][1:2].decode()
