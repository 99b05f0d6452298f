"""Which of the processes that a launcher (accelerate, torchrun) started this one is, as its environment says."""

from __future__ import annotations

import os


def rank() -> int:
    """0 in a process that no launcher started."""
    return int(os.environ.get("RANK", "0"))


def world() -> int:
    """The number of processes; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def flag(name: str) -> bool:
    """Whether the launcher has switched `name` on."""
    return os.environ.get(name, "").lower() in ("true", "1")
