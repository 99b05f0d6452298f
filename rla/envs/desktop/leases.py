"""Leases of machines: a folder for each one that says whose it is, so that nothing of a killed stage stays.

    <temporary files>/rla-desktops-<user>/<pid>-<start>-<n>/{lease.json, socket}

A process is known by its id and by when it started (clock ticks since the machine booted), because ids are used again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process. `started` is 0 where there is none of that id."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        return self.started > 0 and process_start(self.pid) == self.started


def process_start(pid: int) -> int:
    """When a process started, in clock ticks; 0 where there is none, or where it has ended and waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def this_process() -> Owner:
    return Owner(pid=os.getpid(), started=process_start(os.getpid()))


def leases_folder() -> Path:
    """Where all machines of this user have their folders. Raises OSError where somebody else has made it."""
    folder = Path(tempfile.gettempdir(), f"rla-desktops-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise OSError(f"{folder} belongs to somebody else")
    return folder


@dataclass(frozen=True, slots=True)
class MachineLease:
    """A machine's folder."""

    folder: Path

    def note(self, program: int) -> None:
        """Which process the machine is."""
        owner, machine = this_process(), Owner(pid=program, started=process_start(program))
        lines = {"owner": [owner.pid, owner.started], "machine": [machine.pid, machine.started]}
        part = self.folder / "lease.json.tmp"
        part.write_text(json.dumps(lines))
        part.rename(self.folder / "lease.json")

    def end(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def new_lease() -> MachineLease:
    """Raises OSError."""
    own = this_process()
    folder = leases_folder() / f"{own.pid}-{own.started}-{next(_numbers)}"
    folder.mkdir(mode=0o700)
    return MachineLease(folder)


def sweep() -> int:
    """End what processes have left that are no more; how many machines these were."""
    ended = 0
    for folder in leases_folder().iterdir():
        owner = owner_of_folder(folder)
        if owner is None or owner.alive:
            continue
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            machine = Owner(**dict(zip(("pid", "started"), _noted(folder)["machine"], strict=True)))
            if machine.alive:
                os.kill(machine.pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        ended += 1
    return ended


def owner_of_folder(folder: Path) -> Owner | None:
    """None for what is no folder of a machine."""
    words = folder.name.split("-")
    if len(words) != 3 or not all(word.isdigit() for word in words):
        return None
    return Owner(pid=int(words[0]), started=int(words[1]))


def _noted(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads((folder / "lease.json").read_text())
    return found
