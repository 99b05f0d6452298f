"""How many processors there are to use."""

from __future__ import annotations

import os

CORES = "RLA_CORES"  # environment variable: the share of a machine's cores that a process was started with


def usable_cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min(found, int(os.environ.get(CORES) or found))
