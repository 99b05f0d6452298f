"""What a machine is: something with a screen that serves OSWorld's protocol, and that can be made new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAddress:
    """Where a guest server is: a base URL, and where `socket` is given, the socket of the file system behind it."""

    url: str
    socket: str = ""
    token: str = ""


class DesktopMachine(Protocol):
    """One screen, for one episode at a time. All raise MachineLost where it fails."""

    @property
    def address(self) -> GuestAddress: ...

    async def start(self) -> None:
        """Until its server answers."""
        ...

    async def reset(self) -> None:
        """As it was after `start`, whatever has been done on it."""
        ...

    async def stop(self) -> None:
        """Nothing of it is left. May be called at any time, and twice."""
        ...

    def drop(self) -> None:
        """End it at once, without waiting, where no event loop may run any more; `stop` may follow."""
        ...


class MachineLost(Exception):
    """A machine that did not start, died or answered nonsense; the message says how."""
