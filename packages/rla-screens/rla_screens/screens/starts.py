"""When a process started, which tells it from a later one of the same id: ids are used again."""

from __future__ import annotations

from pathlib import Path


def process_start(pid: int) -> int:
    """When a process started, in clock ticks since the machine booted; 0 where there is none, or where it has ended
    and waits to be reaped.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
