"""The machines of a stage: at most `env.own.machines` at a time, a new one for each episode."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from rla.envs.observation import EnvironmentFailure
from rla.errors import UserError
from rla_screens.desktop.docker import DockerMachine, remove_orphans
from rla_screens.desktop.leases import sweep
from rla_screens.desktop.local import LocalDesktop, walls_of
from rla_screens.desktop.machines import DesktopMachine, GuestAddress, MachineLost
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.remote import RemoteMachine

TRIES = 2


class MachinePool:
    """For one event loop. Raises UserError if no machine is available."""

    def __init__(self, own: DesktopParams) -> None:
        self.own = own
        self._makers = machine_makers(own)
        self._free: asyncio.Queue[Callable[[], DesktopMachine]] | None = None
        self._taken: dict[DesktopMachine, Callable[[], DesktopMachine]] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self._times: list[float] = []

    async def take(self) -> DesktopMachine:
        """A newly started machine; waits for a free place. Raises EnvironmentFailure if it fails to start twice. A
        cancelled call leaks neither a machine nor a place.
        """
        free = await self._seats()
        make = await free.get()
        for left in reversed(range(TRIES)):
            machine, began = make(), time.monotonic()
            try:
                await machine.start()
            except MachineLost as error:
                if left:
                    continue
                free.put_nowait(make)
                raise EnvironmentFailure(f"a machine {error}") from None
            except BaseException:
                await asyncio.shield(self._ending(machine, make))
                raise
            self._times.append(time.monotonic() - began)
            self._taken[machine] = make
            return machine
        raise AssertionError("unreachable")

    def release(self, machine: DesktopMachine) -> None:
        """Stop a machine in the background. Raises RuntimeError if no event loop runs."""
        self._ending(machine, self._taken.pop(machine, None))

    async def give(self, machine: DesktopMachine) -> None:
        """Stop a machine, so that the next may start. This completes even if the caller is cancelled."""
        await asyncio.shield(self._ending(machine, self._taken.pop(machine, None)))

    def _ending(self, machine: DesktopMachine, make: Callable[[], DesktopMachine] | None) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._ended(machine, make))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    async def _ended(self, machine: DesktopMachine, make: Callable[[], DesktopMachine] | None) -> None:
        try:
            await machine.stop()
        finally:
            if make is not None and self._free is not None:
                self._free.put_nowait(make)

    async def close(self) -> None:
        """Stop all machines."""
        for machine in list(self._taken):
            self.release(machine)
        await asyncio.gather(*self._endings, return_exceptions=True)

    def figures(self) -> dict[str, float]:
        """The number of machines started, and the total time in seconds that it took."""
        return {"machines": float(len(self._times)), "machine_start_s": sum(self._times)} if self._times else {}

    async def _seats(self) -> asyncio.Queue[Callable[[], DesktopMachine]]:
        if self._free is None:
            self._free = asyncio.Queue()
            for make in self._makers:
                self._free.put_nowait(make)
            await remove_orphans() if self.own.machine == "docker" else await asyncio.to_thread(_swept)
        return self._free


def _swept() -> None:
    """Raises UserError if leases cannot be created."""
    try:
        sweep()
    except OSError as error:
        raise UserError(f"leases of machines cannot be had ({error}); set TMPDIR to a folder of your own") from None


def machine_makers(own: DesktopParams) -> list[Callable[[], DesktopMachine]]:
    """One factory for each machine that may run at a time. Raises UserError."""
    if own.machine == "remote":
        token = os.environ.get(own.token_env, "")
        places = [GuestAddress(url=address.rstrip("/"), token=token) for address in own.addresses]
        return [lambda at=at: RemoteMachine(at, longest_s=own.start_s) for at in places]  # type: ignore[misc]
    if own.machine == "docker":
        return [lambda: DockerMachine(own)] * own.machines
    walls = walls_of(own)
    return [lambda: LocalDesktop(own, walls)] * own.machines
