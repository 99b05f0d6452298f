"""How long the stages of a run took: `<run>/timings/<iteration>-<stage>.json`, one record for each stage call's calls.

No output depends on these records, so what cannot be read in them is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.record import read_regular

APART = ("report",)  # its time is none of the run's: it would change what it says with every call


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedDevice:
    """A GPU that a call used, or with an empty `gpu` a CPU. `host`: another one than the call's. `spans`: when it was
    used, in seconds since the epoch, where that was not the whole call.
    """

    gpu: str
    model: str = ""
    host: str = ""
    spans: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall:
    """One call of one stage. `started`: seconds since the epoch. `made`: whether it made anything. `origin`: of its
    outputs. `host`, `devices`, `part`: where it ran, as `rla.cli.call_record` writes it. `figures`: those that an
    environment joins.
    """

    stage: str
    iteration: int
    started: float
    seconds: float
    made: bool
    origin: str | None
    host: str
    devices: tuple[TimedDevice, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    part: str = ""


def calls_of(file: Path) -> list[TimedCall]:
    """`current_calls` of a record; none of what cannot be read."""
    try:
        return current_calls(json.loads(read_regular(file)))
    except (OSError, UserError, ValueError, KeyError, TypeError):
        return []


def current_calls(record: Any) -> list[TimedCall]:
    """The calls of a record whose outputs were of the same origin as those of the last one; none of `APART`.

    Raises KeyError, TypeError or ValueError where it is not the times of a stage.
    """
    stage, iteration = str(record["stage"]), int(record["iteration"])
    calls = [
        TimedCall(
            stage=stage,
            iteration=iteration,
            started=datetime.fromisoformat(call["started"]).timestamp(),
            seconds=float(call["seconds"]),
            made=bool(call["made"]),
            origin=call["origin"],
            figures={str(name): float(value) for name, value in dict(call.get("figures", {})).items()},
            host=str(call["host"]),
            devices=tuple(map(timed_device, call["devices"])),
            part=str(call.get("slice", "")),
        )
        for call in record["calls"]
    ]
    return [call for call in calls if call.origin in (None, calls[-1].origin) and stage not in APART]


def timed_device(record: Any) -> TimedDevice:
    """Raises KeyError, TypeError or ValueError as `current_calls` does."""
    return TimedDevice(
        gpu=str(record["gpu"]),
        model=str(record["name"]),
        host=str(record.get("host", "")),
        spans=tuple((float(start), float(end)) for start, end in record.get("spans", ())),
    )
