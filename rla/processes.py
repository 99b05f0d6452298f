"""Which of the processes that a launcher (accelerate, torchrun) started this one is, as its environment says."""

from __future__ import annotations

import ctypes
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


def speaks() -> bool:
    """Whether what this process has to say is not said by another: the first one, or the one that launched it."""
    return rank() == 0 and LAUNCHED not in os.environ


def flag(name: str) -> bool:
    """Whether the launcher has switched `name` on."""
    return os.environ.get(name, "").lower() in ("true", "1")


def end_with_parent() -> None:
    """Where the system can: this process is killed when its parent is, so that none runs unwatched."""
    control = getattr(ctypes.CDLL(None), "prctl", None)
    if control is not None:
        control(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
