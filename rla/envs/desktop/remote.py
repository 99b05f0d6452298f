"""Machines that somebody else runs: a guest server at a given address. What one has done there stays there."""

from __future__ import annotations

from rla.envs.desktop.client import GuestClient, GuestRefusal
from rla.envs.desktop.machines import GuestAddress, MachineLost


class RemoteMachine:
    """A `Machine` at an address."""

    def __init__(self, address: GuestAddress, *, longest_s: float) -> None:
        self._address, self._longest = address, longest_s

    @property
    def address(self) -> GuestAddress:
        return self._address

    async def start(self) -> None:
        client = GuestClient(self._address, longest_s=self._longest)
        try:
            await client.greet()
        except GuestRefusal as refusal:
            raise MachineLost(
                f"at {self._address.url} refuses ({refusal}); is its token in env.own.token_env?"
            ) from None
        finally:
            await client.close()

    async def reset(self) -> None:
        """Nothing can be undone from here."""
        await self.start()

    async def stop(self) -> None:
        """It is not ours to stop."""

    def drop(self) -> None:
        """Nor to end."""
