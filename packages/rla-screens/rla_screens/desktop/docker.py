"""Machines in containers, through the command `docker`: an image that serves OSWorld's protocol at port 5000.

    docker run --detach --rm --label rla-owner=PLACE-PID-START --publish 127.0.0.1::5000 [env.own.docker ...] IMAGE
    docker port NAME 5000        docker rm --force NAME

Containers of dead processes are removed when a service begins. A daemon may serve several hosts, process namespaces and
users, whose processes are invisible from here: their containers are left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import time

from rla.errors import UserError
from rla_screens.desktop.client import GuestClient, GuestRefusal
from rla_screens.desktop.leases import marked_owner, this_process
from rla_screens.desktop.machines import GuestAddress, MachineLost
from rla_screens.desktop.params import DesktopParams

LABEL = "rla-owner"
PORT = "5000"  # of the guest server in the container
COMMAND_S = 300.0  # seconds; an image may have to be downloaded
LOOK_S = 0.5
ENDING_S = 10.0  # seconds that a command may go on after it is cancelled


def run_arguments(own: DesktopParams, name: str) -> list[str]:
    """The arguments of the command that starts a container."""
    published = ["--publish", f"127.0.0.1::{PORT}"]
    labels = ["--label", f"{LABEL}={this_process().mark}"]
    return ["run", "--detach", "--rm", "--name", name, *labels, *published, *own.docker, own.image]


class DockerMachine:
    """A `Machine` in a container of its own."""

    def __init__(self, own: DesktopParams) -> None:
        self._own = own
        self._name = ""
        self._port = 0

    @property
    def address(self) -> GuestAddress:
        token = os.environ.get(self._own.token_env, "")
        return GuestAddress(url=f"http://127.0.0.1:{self._port}", token=token)

    async def start(self) -> None:
        self._name = f"rla-desktop-{secrets.token_hex(6)}"
        try:
            await docker(*run_arguments(self._own, self._name))
            said = await docker("port", self._name, PORT)
            self._port = int(said.splitlines()[0].rpartition(":")[2])
            await self._greeted()
        except (MachineLost, LookupError, ValueError) as error:
            await self.stop()
            raise MachineLost(f"in a container of {self._own.image} did not start ({error})") from None

    async def reset(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        name, self._name = self._name, ""
        if name:
            with contextlib.suppress(MachineLost):
                await docker("rm", "--force", name)

    def drop(self) -> None:
        name, self._name = self._name, ""
        if name:
            nothing = subprocess.DEVNULL
            subprocess.run(["docker", "rm", "--force", name], stdout=nothing, stderr=nothing, check=False)

    async def _greeted(self) -> None:
        until = time.monotonic() + self._own.start_s
        client = GuestClient(self.address, longest_s=10.0)
        try:
            while True:
                try:
                    return await client.greet()
                except (MachineLost, GuestRefusal):
                    if time.monotonic() > until:
                        raise MachineLost(f"its server does not answer within {self._own.start_s:g} s") from None
                await asyncio.sleep(LOOK_S)
        finally:
            await client.close()


async def docker(*arguments: str) -> str:
    """The output of the command. Raises MachineLost if it fails, UserError if `docker` is not installed."""
    try:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("docker", *arguments, stdout=pipe, stderr=pipe)
    except FileNotFoundError:
        raise UserError("env.own.machine is docker, but the command docker is missing; install it") from None
    try:
        out, err = await asyncio.wait_for(process.communicate(), COMMAND_S)
    except TimeoutError:
        await _ended(process, within_s=0.0)
        raise MachineLost(f"docker {arguments[0]} took longer than {COMMAND_S:g} s") from None
    except asyncio.CancelledError:
        await _ended(process, within_s=ENDING_S)  # then the daemon has finished the request, and it can be undone
        raise
    if process.returncode != 0:
        raise MachineLost(f"docker {arguments[0]}: {err.decode(errors='replace').strip()[-300:]}")
    return out.decode(errors="replace")


async def _ended(process: asyncio.subprocess.Process, *, within_s: float) -> None:
    """Wait until the process ends by itself. Kill it after `within_s` seconds, or if this call is cancelled too."""
    try:
        await asyncio.wait_for(process.wait(), within_s)
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def remove_orphans() -> int:
    """Remove containers whose owner is certainly dead, started or not. Returns their number. Raises UserError if the
    command fails.
    """
    shown = '{{.Names}} {{.Label "' + LABEL + '"}}'
    try:
        said = await docker("ps", "--all", "--filter", f"label={LABEL}", "--format", shown)
    except MachineLost as lost:
        raise UserError(f"env.own.machine is docker, and the command fails ({lost}); does its daemon run?") from None
    gone = []
    for line in said.splitlines():
        name, _, mark = line.partition(" ")
        owner = marked_owner(mark)
        if owner is not None and owner.gone:
            gone.append(name)
    for name in gone:
        with contextlib.suppress(MachineLost):  # another stage may remove it at the same time
            await docker("rm", "--force", name)
    return len(gone)
