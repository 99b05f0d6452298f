"""Whether a process on a machine is still busy, so that its screen stands still only for lack of CPU time.

On a busy host an application may wait longer for its turn than a screen has to stand still, and draw afterwards. This
works only on a machine that belongs to the session alone; elsewhere the user's other programs may be busy for hours.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

BUSY = frozenset("RD")  # running or runnable; waiting for a disk


def restless() -> bool:
    """Whether a thread of another process of this user is busy."""
    others = (int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid())
    return any(state in BUSY for process in others if owned(process) for state in thread_states(process))


def owned(process: int) -> bool:
    try:
        return os.stat(f"/proc/{process}").st_uid == os.geteuid()
    except OSError:
        return False


def thread_states(process: int) -> Iterator[str]:
    """The state of each of its threads, by the letters of proc(5); threads that end in between are skipped."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/stat", "rb") as file:
                yield file.read().rpartition(b")")[2][1:2].decode()
