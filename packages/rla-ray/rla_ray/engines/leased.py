"""What a stage knows of the engines on a cluster that it uses, and of the requests that they have."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from rla.llm.base import Completion, Request
from rla.processes import USED, UsedDevice
from rla_ray.engines.cluster import EngineActorRef


@dataclass(slots=True, eq=False)
class Asked:
    """A request that is not answered, and the engine that has it."""

    request: Request
    future: asyncio.Future[list[Completion]]
    engine: PoolEngine | None = None


@dataclass(slots=True, eq=False)
class PoolEngine:
    """An engine as this stage sees it. `open`: it holds the lease; `asked`: numbers of its unanswered requests."""

    ref: EngineActorRef
    open: bool = False
    opening: Any = None  # the call that opens the lease, where it is under way
    asked: set[int] = field(default_factory=set)
    requests: list[tuple[int, Request]] = field(default_factory=list)  # not sent yet
    gone: list[int | str] = field(default_factory=list)

    def leased(self, devices: tuple[UsedDevice, ...]) -> None:
        """The stage has the engine, and uses what it stands on."""
        self.open = True
        USED.begin(self.ref.name, devices)

    def left(self) -> list[int]:
        """The stage has it no more; the numbers of what it had not answered, in order."""
        self.open = False
        USED.end(self.ref.name)
        numbers, self.asked = sorted(self.asked), set()
        self.requests, self.gone = [], []
        return numbers
