"""The start time of a process, which tells it from a later one with the same id."""

from __future__ import annotations

from pathlib import Path


def process_start(pid: int) -> int:
    """The start time in clock ticks since boot; 0 if there is no such process, or if it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
