"""A desktop on this machine: Xvfb, openbox and the user's applications in a sandbox, with a guest server on a socket.

The socket is created here and passed in, so nothing inside the sandbox can write a file of the host. Killing this
process kills the machine: bubblewrap ends with its parent, and everything in the sandbox with bubblewrap.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
from pathlib import Path

from rla_programs.execution.cgroups import BoxGroup, box_group, delegated
from rla_programs.execution.records import Limits

from rla_screens.desktop.client import GuestClient, GuestRefusal
from rla_screens.desktop.leases import MachineLease, new_lease
from rla_screens.desktop.machines import GuestAddress, MachineLost
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.walls import HOME, PROGRAMS, Walled, Walls

DISPLAY = ":0"
KEPT_ERRORS = 4000  # bytes
ENDING_S, LOOK_S = 1.0, 0.05
MOST_LINKS = 16


def walls_of(own: DesktopParams) -> Walls:
    """Raises UserError if machines cannot run here."""
    beside = [str(Path(path).resolve()) for path in (own.osworld,) if path]
    if own.guest_python:
        program = Path(own.guest_python).absolute()
        folder = program.parent.parent
        beside += [str(folder), *(path for path in links_of(program) if not Path(path).is_relative_to(folder))]
    return Walls(disk_mb=own.disk_mb, beside=beside)


def links_of(program: Path) -> list[str]:
    """The targets of a program's links, step by step: a virtual environment's Python links to another installation."""
    found: list[str] = []
    while program.is_symlink() and len(found) < MOST_LINKS:
        program = Path(os.path.normpath(program.parent / program.readlink()))
        found.append(str(program))
    return [path for path in found if os.path.exists(path) and not path.startswith("/usr/")]


class LocalDesktop:
    """A `Machine`."""

    def __init__(self, own: DesktopParams, walls: Walls) -> None:
        self._own, self._walls = own, walls
        self._lease: MachineLease | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._group: BoxGroup | None = None
        self._token = ""
        self._first = 0  # pid of the machine's process 1, as seen from here

    @property
    def address(self) -> GuestAddress:
        assert self._lease is not None
        return GuestAddress(url="http://guest", socket=self._lease.socket, token=self._token)

    async def start(self) -> None:
        try:
            self._lease, self._token = new_lease(), secrets.token_hex(16)
            await self._launch()
        except OSError as error:
            await self.stop()
            raise MachineLost(f"did not start ({error})") from None
        await self._await_server()

    async def reset(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self.drop)

    def drop(self) -> None:
        """End process 1 and with it everything on the machine; bubblewrap then ends by itself."""
        process, self._process = self._process, None
        first, self._first = self._first, 0
        if first:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
        if process is not None:
            _wait_for_end(process)
        group, self._group = self._group, None
        if group is not None:
            os.close(group.joining)
            group.remove()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.end()

    async def _launch(self) -> None:
        assert self._lease is not None
        base = delegated()
        limits = Limits(memory_mb=self._own.memory_mb, file_mb=2 * self._own.disk_mb)
        self._group = None if base is None else box_group(base, limits)
        joining = -1 if self._group is None else self._group.joining
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self._lease.socket)
            listening.listen(64)
            walled = self._walls.around(self._session(listening.fileno()), joining=joining)
            told = self._spawn(walled, (listening.fileno(), *([] if joining < 0 else [joining])))
        noting = asyncio.ensure_future(asyncio.to_thread(self._note, told))
        try:
            await asyncio.shield(noting)
        except asyncio.CancelledError:  # first learn which process has to be ended
            await asyncio.wait((noting,))
            raise

    def _spawn(self, walled: Walled, kept: tuple[int, ...]) -> int:
        """Returns the descriptor on which bubblewrap reports the pid of process 1."""
        assert self._lease is not None
        told, telling = os.pipe()
        command = [walled.command[0], "--info-fd", str(telling), *walled.command[1:]]
        try:
            with open(self._lease.folder / "errors", "wb") as errors:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=(telling, *kept, *walled.files),
                    start_new_session=True,
                    env={},
                )
        finally:
            for fd in (telling, *walled.files):
                os.close(fd)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already; its error output says why
            self._process.stdin.write(f"{self._token}\n".encode())
            self._process.stdin.flush()
        return told

    def _note(self, told: int) -> None:
        """Record bubblewrap's report of process 1; do nothing if it does not start."""
        with open(told) as file, contextlib.suppress(ValueError, LookupError):
            self._first = int(json.loads(file.read())["child-pid"])
        if self._lease is not None and self._first:
            self._lease.note(self._first)

    def _session(self, listening: int) -> list[str]:
        """The command of process 1; `Walls.around` fills in user and group."""
        own, walls = self._own, self._walls
        serving = ("--listening", str(listening))
        if own.osworld:
            server = walls.module("theirs", str(Path(own.osworld).resolve()), *serving, python=own.guest_python)
        else:
            server = walls.module("server", *serving, "--alone")
        settings = {
            "display": DISPLAY,
            "width": own.width,
            "height": own.height,
            "home": HOME,
            "programs": PROGRAMS,
            "listening": listening,
            "server": server,
            "accessible": own.accessible or bool(own.osworld),
            "user": "%USER",
            "group": "%GROUP",
            "memory": own.memory_mb << 20,
            "disk": own.disk_mb << 20,
        }
        return walls.module("session", json.dumps(settings))

    async def _await_server(self) -> None:
        """Wait until the server answers. The end of the process is noticed at once."""
        assert self._process is not None
        client = GuestClient(self.address, longest_s=self._own.start_s)
        greeting = asyncio.ensure_future(client.greet())
        try:
            while not greeting.done() and self._process.poll() is None:
                await asyncio.wait((greeting,), timeout=LOOK_S)
            if greeting.done() and greeting.exception():
                await asyncio.sleep(ENDING_S)  # a machine that ends refuses connections before its process is gone
            if self._process.poll() is not None:
                said = self._said()
                raise MachineLost(f"did not start ({said}){self._walls.why_not(said)}")
            await greeting
        except (MachineLost, GuestRefusal) as error:
            await self.stop()
            raise MachineLost(str(error)) from None
        finally:
            greeting.cancel()
            await client.close()

    def _said(self) -> str:
        assert self._process is not None and self._lease is not None
        with open(self._lease.folder / "errors", "rb") as file:
            lines = file.read(KEPT_ERRORS).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"


def _wait_for_end(process: subprocess.Popen[bytes]) -> None:
    """Bubblewrap ends with process 1; if it does not within a moment, it is killed."""
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
