"""Leases of machines: a folder for each one that says whose it is, so that nothing of a killed stage stays.

    <temporary files>/rla-desktops-<user>/<place>-<pid>-<start>-<n>/{lease.json, socket}
    <temporary files>/rla-desktops-<user>/address-<digest>.lock

A process is known by its id and by when it started (clock ticks since the machine booted), because ids are used again.
Both say something only where they were taken: in one boot of one host, one namespace of processes, for one user (the
place). Whoever is of another place cannot be judged from here, and what it has is left alone.

An address, which has no process that one could end, is leased by a lock on its file: the kernel gives it back when its
holder ends, in whatever way.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rla_screens.screens.starts import process_start

UNKNOWN = "unknown"  # a place
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process. `started` is 0 where there is none of that id; `place` is empty where it cannot be told."""

    pid: int
    started: int
    place: str = ""

    @property
    def alive(self) -> bool:
        """Of a process of this place."""
        return self.started > 0 and process_start(self.pid) == self.started

    @property
    def gone(self) -> bool:
        """It is certain that it is no more: it was one of this place."""
        return self.place != "" and self.place == this_place() and not self.alive

    @property
    def mark(self) -> str:
        """What `marked_owner` reads."""
        return f"{self.place or UNKNOWN}-{self.pid}-{self.started}"


def marked_owner(mark: str) -> Owner | None:
    """None for what is no mark."""
    words = mark.split("-")
    if len(words) != 3 or not words[0].isalnum() or not all(word.isdecimal() for word in words[1:]):
        return None
    return Owner(pid=int(words[1]), started=int(words[2]), place="" if words[0] == UNKNOWN else words[0])


def this_place() -> str:
    """In which ids of processes mean what they mean here; empty where it cannot be told."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):  # /proc is that of another namespace
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return ""
    return hashlib.sha256(f"{boot} {space} {os.geteuid()}".encode()).hexdigest()[:8]


def this_process() -> Owner:
    return Owner(pid=os.getpid(), started=process_start(os.getpid()), place=this_place())


def leases_folder() -> Path:
    """Where all machines of this user have their folders. Raises OSError where somebody else has made it."""
    folder = Path(tempfile.gettempdir(), f"rla-desktops-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise OSError(f"{folder} belongs to somebody else")
    return folder


@dataclass(frozen=True, slots=True)
class MachineLease:
    """A machine's folder. `descriptor` is open on it: the path of a socket has at most 107 bytes, and the folder's own
    may be longer than that.
    """

    folder: Path
    descriptor: int

    @property
    def socket(self) -> str:
        """Where the machine listens; for this process alone."""
        return f"/proc/self/fd/{self.descriptor}/socket"

    def note(self, program: int) -> None:
        """Which process the machine is."""
        owner, machine = this_process(), Owner(pid=program, started=process_start(program))
        lines = {"owner": [owner.pid, owner.started], "machine": [machine.pid, machine.started]}
        part = self.folder / "lease.json.tmp"
        part.write_text(json.dumps(lines))
        part.rename(self.folder / "lease.json")

    def end(self) -> None:
        """Once."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.descriptor)


def new_lease() -> MachineLease:
    """Raises OSError."""
    folder = leases_folder() / f"{this_process().mark}-{next(_numbers)}"
    folder.mkdir(mode=0o700)
    try:
        return MachineLease(folder, os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError:
        folder.rmdir()
        raise


def sweep() -> int:
    """End what processes have left that are no more; how many machines these were."""
    ended = 0
    for folder in leases_folder().iterdir():
        owner = owner_of_folder(folder)
        if owner is None or not owner.gone:
            continue
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            pid, started = _noted(folder)["machine"]
            machine = Owner(pid=pid, started=started)
            if machine.alive:
                os.kill(machine.pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        ended += 1
    return ended


def owner_of_folder(folder: Path) -> Owner | None:
    """None for what is no folder of a machine."""
    mark, _, number = folder.name.rpartition("-")
    return marked_owner(mark) if number.isdecimal() else None


def _noted(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads((folder / "lease.json").read_text())
    return found


@dataclass(frozen=True, slots=True)
class AddressLease:
    """A machine at an address is this process's alone, among those of this user on this host."""

    descriptor: int

    def end(self) -> None:
        os.close(self.descriptor)


def lease_of_address(address: str) -> AddressLease | None:
    """None where another has it, in this process or in one besides. The file stays: it is the lock on it that says.
    Raises OSError.
    """
    place = leases_folder() / f"address-{hashlib.sha256(address.encode()).hexdigest()[:16]}.lock"
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return AddressLease(descriptor)
