"""Which GPUs of other machines this process's stage has used, and when: for records of times (`rla.cli.calls`).

A stage whose engines or training workers stand elsewhere does not use the devices of its own machine. What it uses
is noted here as it begins and ends.
"""

from __future__ import annotations

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


def model_name(index: int) -> str:
    """Of the GPU that this process sees at a place; empty where torch is not loaded or sees none."""
    torch = loaded_torch(index)
    return "" if torch is None else str(torch.cuda.get_device_name(index))


def uuid_of(index: int) -> str:
    """` (1a2b3c4d)`: the same GPU has another number in another job. Empty where `model_name` is."""
    torch = loaded_torch(index)
    return "" if torch is None else f" ({str(torch.cuda.get_device_properties(index).uuid)[:8]})"


def loaded_torch(index: int) -> Any:
    """The module, where it is loaded and sees a GPU at this place."""
    torch = sys.modules.get("torch")
    sees = torch is not None and torch.cuda.is_available() and index < torch.cuda.device_count()
    return torch if sees else None
