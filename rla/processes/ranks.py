"""Which of the processes that a launcher (accelerate, torchrun) started this one is, as its environment says; and
processes that end with their parent.
"""

from __future__ import annotations

import os
import signal

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
    import ctypes

    control = getattr(ctypes.CDLL(None), "prctl", None)
    if control is not None:
        control(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        raise SystemExit(0)
