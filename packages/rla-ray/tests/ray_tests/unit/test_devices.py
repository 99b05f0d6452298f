"""What a stage notes of the devices that it uses on a cluster."""

from __future__ import annotations

import pytest
from rla_ray.devices import DeviceLog, UsedDevice


def test_uses_are_noted_by_device_with_their_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("rla_ray.devices.time.time", lambda: now)
    log = DeviceLog()
    first, second = UsedDevice(host="a", gpu="0", model="H100"), UsedDevice(host="b")
    log.begin("one", [first])
    log.begin("two", [first, second])
    now = 110.0
    log.end("one")
    log.end("never begun")
    now = 120.0
    log.begin("one", [second])  # again, and elsewhere
    now = 125.0
    assert log.taken() == [
        {"host": "a", "gpu": "0", "name": "H100", "spans": [[100.0, 110.0], [100.0, 125.0]]},
        {"host": "b", "gpu": "", "name": "", "spans": [[100.0, 125.0], [120.0, 125.0]]},
    ]
    assert log.taken() == []
