"""Which of the processes that a launcher (accelerate, torchrun) started this one is, as its environment says; and how
it ends: with its parent, or without the interpreter's own end. What this imports, a call that a server takes does not
need.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import traceback
from typing import NoReturn

LAUNCHED = "RLA_LAUNCHED"  # set for the processes of `launch.training`
SET_PARENT_DEATH_SIGNAL = 1  # prctl(2)


def rank() -> int:
    """0 in a process that no launcher started."""
    return int(os.environ.get("RANK", "0"))


def world() -> int:
    """The number of processes; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def launched() -> bool:
    """Whether a launcher started this process, its own or that of `launch.training`."""
    return LAUNCHED in os.environ or "WORLD_SIZE" in os.environ


def speaks() -> bool:
    """Whether what this process has to say is not said by another: the first one, or the one that launched it."""
    return rank() == 0 and LAUNCHED not in os.environ


def flag(name: str) -> bool:
    """Whether the launcher has switched `name` on."""
    return os.environ.get(name, "").lower() in ("true", "1")


def end_with_parent(parent: int | None = None) -> None:
    """Where the system can (Linux): this process is killed when its parent dies, whatever it is doing then.

    Raises SystemExit where `parent`, the process that started this one, is gone already.
    """
    control = getattr(ctypes.CDLL(None), "prctl", None)
    if control is not None:
        control(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        raise SystemExit(0)


def end_at_once(status: int) -> NoReturn:
    """End this process at once, with what it has written so far where that can be written."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # absent, full, closed
            stream.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(status)


def leave(status: int) -> NoReturn:
    """End this process as Python would, its threads and exit functions first, but do not take the interpreter down.

    Gloo's threads let go of a collective's tensors after it is done. One that does so while the interpreter is taken
    down aborts the process, which fails a launch whose work is finished; destroying the process group joins the
    threads only where nothing else holds it, and FSDP2 and DeepSpeed do. What fails on the way is printed.
    """
    for step in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
        try:
            step()
        except BaseException:
            traceback.print_exc()
    end_at_once(status)
