"""A stage's view of the engines that it uses on a cluster, and of the requests that they hold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from rla.llm.base import Completion, Request
from rla_ray.devices import USED, UsedDevice
from rla_ray.engines.cluster import EngineActorRef


@dataclass(slots=True, eq=False)
class Asked:
    """An unanswered request, and the engine that has it."""

    request: Request
    future: asyncio.Future[list[Completion]]
    engine: PoolEngine | None = None


@dataclass(slots=True, eq=False)
class PoolEngine:
    """An engine as seen by this stage. `open`: the stage holds the lease; `asked`: its unanswered requests."""

    ref: EngineActorRef
    open: bool = False
    opening: Any = None  # the call that opens the lease, while it is in progress
    asked: set[int] = field(default_factory=set)
    requests: list[tuple[int, Request]] = field(default_factory=list)  # not sent yet
    gone: list[int | str] = field(default_factory=list)

    def leased(self, devices: tuple[UsedDevice, ...]) -> None:
        """The stage has got the lease; record the devices that the engine uses."""
        self.open = True
        USED.begin(self.ref.name, devices)

    def left(self) -> list[int]:
        """The stage has lost the engine. Returns the numbers of its unanswered requests, in order."""
        self.open = False
        USED.end(self.ref.name)
        numbers, self.asked = sorted(self.asked), set()
        self.requests, self.gone = [], []
        return numbers
