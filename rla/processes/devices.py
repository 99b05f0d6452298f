"""Which GPUs of a cluster the stage of this process has used, and when: for the records of times (`rla.cli.machine`).

A stage whose engines or training workers stand on a cluster does not use the devices of its own machine. What it uses
is noted here as it begins and ends.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedDevice:
    """A GPU of a host by its number there, or with an empty `gpu` the host's CPU. `model`: what the GPU is."""

    host: str
    gpu: str = ""
    model: str = ""


@dataclass(slots=True)
class DeviceLog:
    """Spans of use, in seconds since the epoch."""

    _begun: dict[Hashable, tuple[float, tuple[UsedDevice, ...]]] = field(default_factory=dict)
    _spans: dict[UsedDevice, list[tuple[float, float]]] = field(default_factory=dict)

    def begin(self, use: Hashable, devices: Iterable[UsedDevice]) -> None:
        """The named use of devices begins, now; a use that had begun ends."""
        self.end(use)
        self._begun[use] = (time.time(), tuple(devices))

    def end(self, use: Hashable) -> None:
        """Nothing happens where it had not begun."""
        start, devices = self._begun.pop(use, (0.0, ()))
        for device in devices:
            self._spans.setdefault(device, []).append((start, time.time()))

    def end_all(self) -> None:
        for use in list(self._begun):
            self.end(use)

    def taken(self) -> list[dict[str, Any]]:
        """What was used since this was asked last, as the records of times have it; uses that go on end."""
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


def devices_of_ray_worker() -> tuple[UsedDevice, ...]:
    """The GPUs that Ray has given to this process, one of its workers; without one the CPU of its node."""
    import ray

    host, torch = platform.node(), sys.modules.get("torch")
    seen = torch is not None and torch.cuda.is_available()
    model = str(torch.cuda.get_device_name(0)) if seen and torch is not None else ""
    found = [UsedDevice(host=host, gpu=str(number), model=model) for number in ray.get_gpu_ids()]
    return tuple(found) or (UsedDevice(host=host),)
