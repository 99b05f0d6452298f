"""Leases of machines: a folder for each machine that names its owner, so that a killed stage leaves nothing behind.

    <temporary files>/rla-desktops-<user>/<place>-<pid>-<start>-<n>/{lease.json, socket}
    <temporary files>/rla-desktops-<user>/address-<digest>.lock

A process is identified by its id and its start time (clock ticks since boot), because ids are reused. Both are
meaningful only in one boot of one host, one process namespace, and for one user: the place. Processes of other places
cannot be checked from here, so their leases are left alone.

An address has no process that could be killed, so it is leased by a lock on its file. The kernel releases the lock when
its holder ends, in any way.
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
    """A process. `started` is 0 if there is no process with that id; `place` is empty if unknown."""

    pid: int
    started: int
    place: str = ""

    @property
    def alive(self) -> bool:
        """Whether the process exists; only for processes of this place."""
        return self.started > 0 and process_start(self.pid) == self.started

    @property
    def gone(self) -> bool:
        """Whether the process has certainly ended: it belonged to this place."""
        return self.place != "" and self.place == this_place() and not self.alive

    @property
    def mark(self) -> str:
        """A text that `marked_owner` parses."""
        return f"{self.place or UNKNOWN}-{self.pid}-{self.started}"


def marked_owner(mark: str) -> Owner | None:
    """The owner in a mark; None if `mark` is not one."""
    words = mark.split("-")
    if len(words) != 3 or not words[0].isalnum() or not all(word.isdecimal() for word in words[1:]):
        return None
    return Owner(pid=int(words[1]), started=int(words[2]), place="" if words[0] == UNKNOWN else words[0])


def this_place() -> str:
    """The place in which this process's id is meaningful; empty if unknown."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):  # /proc belongs to another namespace
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return ""
    return hashlib.sha256(f"{boot} {space} {os.geteuid()}".encode()).hexdigest()[:8]


def this_process() -> Owner:
    return Owner(pid=os.getpid(), started=process_start(os.getpid()), place=this_place())


def leases_folder() -> Path:
    """The folder for all machines of this user. Raises OSError if another user has created it."""
    folder = Path(tempfile.gettempdir(), f"rla-desktops-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise OSError(f"{folder} belongs to somebody else")
    return folder


@dataclass(frozen=True, slots=True)
class MachineLease:
    """A machine's folder. `descriptor` is open on it, because the path of a socket may have at most 107 bytes and the
    folder's own path may be longer.
    """

    folder: Path
    descriptor: int

    @property
    def socket(self) -> str:
        """The path at which the machine listens, valid in this process only."""
        return f"/proc/self/fd/{self.descriptor}/socket"

    def note(self, program: int) -> None:
        """Record the machine's process."""
        owner, machine = this_process(), Owner(pid=program, started=process_start(program))
        lines = {"owner": [owner.pid, owner.started], "machine": [machine.pid, machine.started]}
        part = self.folder / "lease.json.tmp"
        part.write_text(json.dumps(lines))
        part.rename(self.folder / "lease.json")

    def end(self) -> None:
        """End the lease. Called once."""
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
    """Clean up after processes that have ended. Returns the number of machines."""
    ended = 0
    for folder in leases_folder().iterdir():
        owner = _owner_of_folder(folder)
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


def _owner_of_folder(folder: Path) -> Owner | None:
    """The owner of a machine's folder; None if `folder` is not one."""
    mark, _, number = folder.name.rpartition("-")
    return marked_owner(mark) if number.isdecimal() else None


def _noted(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads((folder / "lease.json").read_text())
    return found


@dataclass(frozen=True, slots=True)
class AddressLease:
    """The machine at an address belongs to this process alone, among the processes of this user on this host."""

    descriptor: int

    def end(self) -> None:
        os.close(self.descriptor)


def lease_of_address(address: str) -> AddressLease | None:
    """None if another stage holds it, in this process or another. The file stays, because the lock on it is the lease.
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
