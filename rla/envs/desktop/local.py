"""A desktop on this machine: Xvfb, openbox and the user's applications behind walls, and a guest server on a socket.

The socket is made here and handed in, so nothing behind the walls can write a file of the host's. Whoever kills this
process kills the machine: bubblewrap dies with its parent, and everything behind the walls with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
from pathlib import Path

from rla.envs.desktop.client import GuestClient, GuestRefusal
from rla.envs.desktop.leases import Lease, new_lease
from rla.envs.desktop.machines import GuestAddress, MachineLost
from rla.envs.desktop.params import DesktopParams
from rla.envs.desktop.walls import HOME, PROGRAMS, Walled, Walls
from rla.envs.execution.cgroups import BoxGroup, box_group, delegated
from rla.envs.execution.records import Limits

DISPLAY = ":0"
KEPT_ERRORS = 4000  # bytes
ENDING_S = 1.0


def walls_of(own: DesktopParams) -> Walls:
    """Raises UserError where no machine can be had here."""
    beside = [str(Path(path).resolve()) for path in (own.osworld,) if path]
    if own.guest_python:
        beside.append(str(Path(own.guest_python).absolute().parent.parent))
    return Walls(disk_mb=own.disk_mb, beside=beside)


class LocalDesktop:
    """A `Machine`."""

    def __init__(self, own: DesktopParams, walls: Walls) -> None:
        self._own, self._walls = own, walls
        self._lease: Lease | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._group: BoxGroup | None = None
        self._token = ""
        self._first = 0  # process 1 of the machine, by its number here

    @property
    def address(self) -> GuestAddress:
        assert self._lease is not None
        return GuestAddress(url="http://guest", socket=str(self._lease.folder / "socket"), token=self._token)

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
        process, self._process = self._process, None
        self.drop()
        if process is not None:
            await ended(process)
        group, self._group = self._group, None
        if group is not None:
            os.close(group.joining)
            await asyncio.to_thread(group.remove)

    def drop(self) -> None:
        first, self._first = self._first, 0
        if first:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)  # and with process 1 everything on the machine
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
            listening.bind(str(self._lease.folder / "socket"))
            listening.listen(64)
            walled = self._walls.around(self._session(listening.fileno()), joining=joining)
            await self._spawn(walled, (listening.fileno(), *([] if joining < 0 else [joining])))

    async def _spawn(self, walled: Walled, kept: tuple[int, ...]) -> None:
        told, telling = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *walled.command[:1],
                "--info-fd",
                str(telling),
                *walled.command[1:],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(telling, *kept, *walled.files),
                start_new_session=True,
                env={},
            )
        finally:
            for fd in (telling, *walled.files):
                os.close(fd)
        await asyncio.to_thread(self._note, told)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self._token}\n".encode())

    def _note(self, told: int) -> None:
        """What bubblewrap says about process 1; nothing where it does not start."""
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
            server = walls.module("server", *serving)
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
        }
        return walls.module("session", json.dumps(settings))

    async def _await_server(self) -> None:
        """Until it answers; its end is noticed at once."""
        assert self._process is not None
        client = GuestClient(self.address, longest_s=self._own.start_s)
        greeting = asyncio.ensure_future(client.greet())
        ending = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait((greeting, ending), return_when=asyncio.FIRST_COMPLETED)
            if ending.done() or (greeting.exception() and await self._ended(ending)):
                said = await self._said()
                raise MachineLost(f"did not start ({said}); {self._walls.why_not(said)}")
            await greeting
        except (MachineLost, GuestRefusal) as error:
            await self.stop()
            raise MachineLost(str(error)) from None
        finally:
            for each in (greeting, ending):
                each.cancel()
            await client.close()

    async def _ended(self, ending: asyncio.Future[int]) -> bool:
        """Whether the machine is ending: its socket refuses before it is gone."""
        return bool((await asyncio.wait((ending,), timeout=ENDING_S))[0])

    async def _said(self) -> str:
        assert self._process is not None and self._process.stderr is not None
        data = await self._process.stderr.read(KEPT_ERRORS)
        lines = data.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"


async def ended(process: asyncio.subprocess.Process) -> None:
    """Until bubblewrap has ended, which it does with process 1; after a moment it is killed."""
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), ENDING_S)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
