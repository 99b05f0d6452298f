"""The interface of a machine: it has a screen, serves OSWorld's protocol, and can be reset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAddress:
    """The address of a guest server: a base URL and, if `socket` is given, the Unix socket behind it."""

    url: str
    socket: str = ""
    token: str = ""


class DesktopMachine(Protocol):
    """One screen, for one episode at a time. All methods raise MachineLost if the machine fails."""

    @property
    def address(self) -> GuestAddress: ...

    async def start(self) -> None:
        """Wait until its server answers."""
        ...

    async def reset(self) -> None:
        """Return to the state after `start`."""
        ...

    async def stop(self) -> None:
        """Remove it completely. May be called at any time, and twice."""
        ...

    def drop(self) -> None:
        """End it at once, without waiting, when no event loop may run any more; `stop` may follow."""
        ...


class MachineLost(Exception):
    """A machine that did not start, died or answered nonsense; the message says how."""
