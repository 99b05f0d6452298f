"""When a stage used devices of other machines, for its record of times."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rla.processes import OTHER_DEVICES


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedDevice:
    """A GPU of a host by its number, or the host's CPU if `gpu` is empty. `model`: the model of the GPU."""

    host: str
    gpu: str = ""
    model: str = ""


@dataclass(slots=True)
class DeviceLog:
    """Uses of devices, in seconds since the epoch."""

    _begun: dict[Hashable, tuple[float, tuple[UsedDevice, ...]]] = field(default_factory=dict)
    _spans: dict[UsedDevice, list[tuple[float, float]]] = field(default_factory=dict)

    def begin(self, use: Hashable, devices: Iterable[UsedDevice]) -> None:
        """Start the use that is named `use`. An earlier use of that name ends."""
        self.end(use)
        self._begun[use] = (time.time(), tuple(devices))

    def end(self, use: Hashable) -> None:
        """End a use; does nothing if it was not started."""
        start, devices = self._begun.pop(use, (0.0, ()))
        for device in devices:
            self._spans.setdefault(device, []).append((start, time.time()))

    def end_all(self) -> None:
        for use in list(self._begun):
            self.end(use)

    def taken(self) -> list[dict[str, Any]]:
        """Remove and return all uses, in the form of the records of times. Uses in progress end."""
        self.end_all()
        found, self._spans = self._spans, {}
        return [
            {
                "host": device.host,
                "gpu": device.gpu,
                "name": device.model,
                "spans": [[round(start, 3), round(end, 3)] for start, end in spans],
            }
            for device, spans in found.items()
        ]


USED = DeviceLog()
OTHER_DEVICES.append(USED.taken)
