"""Processes that end without the interpreter's own end. What this imports, a call that a server takes does not need."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import traceback
from typing import NoReturn


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
