"""Machines that somebody else runs: a guest server at a given address. What one has done there stays there.

A screen is for one episode at a time, so a machine holds the lease of its address from its start to its end. Whoever
wants it holds the lease of being next meanwhile, so a stage that begins one episode after another lets in one that
waits. Stages of other users, of other hosts and with another folder of temporary files do not see the leases.
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
    """A `Machine` at an address. Its start waits up to `longest_s` for the end of another's episode there, and as long
    for an answer.
    """

    def __init__(self, address: GuestAddress, *, longest_s: float) -> None:
        self._address, self._longest = address, longest_s
        self._lease: AddressLease | None = None

    @property
    def address(self) -> GuestAddress:
        return self._address

    async def start(self) -> None:
        """Raises UserError where another stage keeps the address."""
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
        """Nothing can be undone from here."""
        await self.start()

    async def stop(self) -> None:
        """It is not ours to stop."""
        self.drop()

    def drop(self) -> None:
        """Nor to end; the next may have it."""
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
