"""Machines that others run: a guest server at a given address. The effects of an episode stay there.

A screen is for one episode at a time, so a machine holds the lease of its address from start to end. A waiting stage
holds the lease of being next, so a stage that begins one episode after another lets a waiting stage in. Leases are not
visible to other users, to other hosts, or with another folder of temporary files.
"""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

from rla.errors import UserError
from rla_screens.desktop.client import GuestClient, GuestRefusal
from rla_screens.desktop.leases import AddressLease, lease_of_address
from rla_screens.desktop.machines import GuestAddress, MachineLost

LOOK_S = 0.2
HERE = ("localhost", "::1")


class RemoteMachine:
    """A `Machine` at an address. `start` waits up to `longest_s` seconds for the end of another episode there, and as
    long for an answer.
    """

    def __init__(self, address: GuestAddress, *, longest_s: float) -> None:
        self._address, self._longest = address, longest_s
        self._lease: AddressLease | None = None

    @property
    def address(self) -> GuestAddress:
        return self._address

    async def start(self) -> None:
        """Raises UserError if another stage keeps the address."""
        if self._lease is None:
            self._lease = await self._leased()
        client = GuestClient(self._address, longest_s=self._longest)
        try:
            await client.greet()
        except GuestRefusal as refusal:
            self.drop()
            raise MachineLost(
                f"at {self._address.url} refuses ({refusal}); is its token in env.own.token_env?"
            ) from None
        except BaseException:
            self.drop()
            raise
        finally:
            await client.close()

    async def reset(self) -> None:
        """Do nothing: the machine cannot be reset from here."""
        await self.start()

    async def stop(self) -> None:
        """Release the machine, which we cannot stop."""
        self.drop()

    def drop(self) -> None:
        """Release the machine at once."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.end()

    async def _leased(self) -> AddressLease:
        until, screen = time.monotonic() + self._longest, screen_of_address(self._address.url)
        turn = await self._leased_until(until, f"{screen} next")
        try:
            return await self._leased_until(until, screen)
        finally:
            turn.end()

    async def _leased_until(self, until: float, name: str) -> AddressLease:
        url = self._address.url
        while True:
            try:
                lease = lease_of_address(name)
            except OSError as error:
                raise UserError(f"env.own.addresses: {url} cannot be leased ({error})") from None
            if lease is not None:
                return lease
            if time.monotonic() > until:
                raise UserError(
                    f"env.own.addresses: {url} is in use by another stage, and one screen is for one at a time; wait "
                    "for it to end, or name another address"
                )
            await asyncio.sleep(LOOK_S)


def screen_of_address(url: str) -> str:
    """Equal for addresses that are written differently and name the same server."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{'127.0.0.1' if host in HERE else host}:{port}{parts.path.rstrip('/')}"
