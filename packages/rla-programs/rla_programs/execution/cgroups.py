"""A cgroup for each box, if available: it limits resources that no limit of a process counts.

It counts kernel memory (inodes, pipes, page tables), the files of the box and all of its processes together. This needs
cgroup v2 with the controller `memory`, and a group that this user may write, that passes `memory` on to its children,
and that systemd, if it runs, has delegated. The boxes' groups are siblings of this process's group, because a group
that contains processes cannot have children with limits. Nothing is moved or switched on here: `docs/guide/sandbox.md`
has the command that delegates.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from rla_programs.execution.records import Limits

NAME = "rla-box-"
BESIDE_MB = 64  # the controller, and the kernel's own memory for a program that does nothing
EMPTY_S = 2.0  # within which the last process of a box leaves its group
SYSTEMD = Path("/run/systemd/system")

_numbers = itertools.count()


@dataclass(slots=True)
class BoxGroup:
    """The group of one box. `joining`: its cgroup.procs, open; a process that writes 0 to it becomes a member."""

    path: Path
    joining: int
    killed: int = field(default=0, init=False)

    def starved(self) -> bool:
        """Whether the kernel has killed one of its processes for lack of memory since the last call."""
        before = self.killed
        with contextlib.suppress(OSError):
            events = dict(line.split() for line in (self.path / "memory.events").read_text().splitlines())
            self.killed = int(events.get("oom_kill", 0))
        return self.killed > before

    def remove(self) -> None:
        """Remove the group. If it does not become empty in time, it stays for `remove_empty`."""
        until = time.monotonic() + EMPTY_S
        while time.monotonic() < until:
            try:
                return self.path.rmdir()
            except FileNotFoundError:
                return None
            except OSError:
                time.sleep(0.01)


def box_group(base: Path, limits: Limits) -> BoxGroup:
    """A new group for a box with these limits. Raises OSError."""
    path = base / f"{NAME}{os.getpid()}-{next(_numbers)}"
    path.mkdir()
    try:
        most = limits.processes * limits.memory_mb + limits.file_mb + BESIDE_MB
        (path / "memory.max").write_text(str(most << 20))
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap
            (path / "memory.swap.max").write_text("0")
        return BoxGroup(path, os.open(path / "cgroup.procs", os.O_WRONLY))
    except OSError:
        path.rmdir()
        raise


def remove_empty(base: Path) -> None:
    """Remove groups of killed stages; the kernel refuses those that are in use."""
    for path in base.glob(f"{NAME}*"):
        with contextlib.suppress(OSError):
            path.rmdir()


def delegated(process: Path = Path("/proc/self")) -> Path | None:
    """The group in which this process may make groups for boxes, or None."""
    mounts = (line.split() for line in (process / "mountinfo").read_text().splitlines())
    top = next((Path(fields[4]) for fields in mounts if fields[fields.index("-") + 1] == "cgroup2"), None)
    lines = (process / "cgroup").read_text().splitlines()
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if top is None or own is None or ".." in Path(own).parts:
        return None
    candidates = [top / own, (top / own).parent] if own else [top]
    return next((base for base in candidates if _hands_memory_on(base)), None)


def _hands_memory_on(base: Path) -> bool:
    try:
        handed_on = (base / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    writable = all(os.access(path, os.W_OK) for path in (base, base / "cgroup.procs"))
    return "memory" in handed_on and writable and (not SYSTEMD.is_dir() or _is_delegated(base))


def _is_delegated(base: Path) -> bool:
    """Whether systemd leaves the groups below to others (`Delegate=`)."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(base, name) == b"1":
                return True
    return False
