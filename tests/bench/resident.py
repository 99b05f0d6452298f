"""Resident memory of this process, as Linux counts it."""

from __future__ import annotations

import resource
from pathlib import Path


def peak_resident() -> int:
    """Bytes of the largest resident set so far; `getrusage` would count that of the process which started this one."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def resident() -> int:
    """Bytes that are resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
