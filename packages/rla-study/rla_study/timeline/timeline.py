"""Which device ran which stage of which iteration when, from the times of stage calls (`<run>/timings/`).

A device is a GPU of a host, or the CPU of a host for calls that used no GPU. Calls without results, calls of the
report, and calls whose outputs were replaced later are left out. A killed call has left no record.

| figure | meaning |
|---|---|
| wall | from the start of the first call to the end of the last one |
| busy, of a device | the union of its calls: stages that ran at the same time count once |
| idle share | the share of the wall time in which no stage ran; of a device, in which none ran on it |
| GPU hours, busy and wall | the busy time of all GPUs; all GPUs times the wall time |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.report.collect import recorded_calls
from rla.text import one_line

CPU = "CPU"
HOUR = 3600.0
LABEL = 40  # characters of a name in a record


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Device:
    """`name`: `GPU 2`, or `CPU`. `model`: the GPU's model, empty if unknown."""

    host: str
    name: str
    model: str = ""

    @property
    def is_gpu(self) -> bool:
        return self.name != CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One call on one device, in seconds since the epoch."""

    device: Device
    stage: str
    iteration: int
    part: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All spans of a run, in order of their starts; at least one."""

    spans: tuple[Span, ...]

    @property
    def start(self) -> float:
        return min(span.start for span in self.spans)

    @property
    def end(self) -> float:
        return max(span.end for span in self.spans)

    @property
    def wall(self) -> float:
        return self.end - self.start

    @property
    def devices(self) -> list[Device]:
        return sorted({span.device for span in self.spans}, key=device_order)

    @property
    def gpus(self) -> list[Device]:
        return [device for device in self.devices if device.is_gpu]

    def busy(self, *devices: Device) -> float:
        """Seconds in which a stage ran on one of the devices, or on any device if none is named."""
        return union_seconds((one.start, one.end) for one in self.spans if not devices or one.device in devices)

    def idle_share(self, *devices: Device) -> float:
        return 1 - self.busy(*devices) / self.wall if self.wall else 0.0

    @property
    def busy_gpu_hours(self) -> float:
        return sum(self.busy(device) for device in self.gpus) / HOUR

    @property
    def wall_gpu_hours(self) -> float:
        return len(self.gpus) * self.wall / HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedDevice:
    """A GPU that a call used, or a CPU if `gpu` is empty. `host`: of another machine. `spans`: times of use in seconds
    since the epoch, if it was not used during the whole call.
    """

    gpu: str
    model: str = ""
    host: str = ""
    spans: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall:
    """One call of one stage. `started`: seconds since the epoch. `made`: whether it made anything. `origin`: of its
    outputs. `host`, `devices`, `part`: machine and slice as in `rla.cli.calls`.
    """

    stage: str
    iteration: int
    started: float
    seconds: float
    made: bool
    origin: str | None
    host: str
    devices: tuple[TimedDevice, ...]
    part: str = ""


def timed_calls(run: Path) -> list[TimedCall]:
    """All calls that made the current outputs, in the order in which they started. Raises UserError for a damaged
    record.
    """
    found = sorted(recorded_calls(run, timed_call), key=lambda call: call.started)
    last = {(call.stage, call.iteration): call.origin for call in found if call.origin}
    return [call for call in found if call.origin in (None, last.get((call.stage, call.iteration)))]


def timed_call(call: Mapping[str, Any]) -> TimedCall:
    return TimedCall(
        stage=call["stage"],
        iteration=call["iteration"],
        started=datetime.fromisoformat(call["started"]).timestamp(),
        seconds=float(call["seconds"]),
        made=bool(call["made"]),
        origin=call["origin"],
        host=str(call["host"]),
        devices=tuple(
            TimedDevice(
                gpu=str(device["gpu"]),
                model=str(device["name"]),
                host=str(device.get("host", "")),
                spans=tuple((float(start), float(end)) for start, end in device.get("spans", ())),
            )
            for device in call["devices"]
        ),
        part=str(call.get("slice", "")),
    )


def device_order(device: Device) -> tuple[str, bool, int, str]:
    """Sort key: GPUs of a host by number, its CPU last."""
    digits = "".join(sign for sign in device.name if sign.isascii() and sign.isdigit())
    return device.host, not device.is_gpu, int(digits[:9] or 0), device.name


def union_seconds(found: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(found):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def timeline_of(run: Path) -> Timeline | None:
    """The timeline of a run; None if no call that made its outputs was timed."""
    calls = [call for call in timed_calls(run) if call.made and 0 <= call.seconds < float("inf")]
    spans = [span for call in _without_starters(calls) for span in _spans_of(call)]
    return (
        Timeline(spans=tuple(sorted(spans, key=lambda span: (span.start, span.device, span.stage)))) if spans else None
    )


def _without_starters(calls: Sequence[TimedCall]) -> Iterator[TimedCall]:
    """Without calls whose slices were made by workers, because the workers' own records say more."""
    slices: dict[tuple[str, int], list[float]] = {}
    for call in calls:
        if call.part:
            slices.setdefault((call.stage, call.iteration), []).append(call.started)
    for call in calls:
        inner = slices.get((call.stage, call.iteration), ())
        if call.part or not any(call.started <= one < call.started + call.seconds for one in inner):
            yield call


def _spans_of(call: TimedCall) -> Iterator[Span]:
    """A span for each device of the call, or several if it used a device with interruptions."""
    whole = (call.started, call.started + call.seconds)
    for one in call.devices or [TimedDevice(gpu="")]:
        device = Device(
            host=one_line(one.host or call.host, LABEL),
            name=f"GPU {one_line(one.gpu, LABEL)}" if one.gpu else CPU,
            model=one_line(one.model, LABEL),
        )
        for start, end in one.spans or [whole]:
            yield Span(
                device=device,
                stage=one_line(call.stage, LABEL),
                iteration=call.iteration,
                part=one_line(call.part, LABEL),
                start=start,
                end=max(start, end),
            )


def timeline_json(found: Timeline, *, price: float | None = None) -> dict[str, Any]:
    """All numbers; times in seconds, starts relative to the first one. `price`: of one GPU for one hour."""
    devices = found.devices
    return {
        "started": datetime.fromtimestamp(found.start, UTC).isoformat(timespec="seconds"),
        "wall_seconds": round(found.wall, 3),
        "busy_seconds": round(found.busy(), 3),
        "idle_share": round(found.idle_share(), 4),
        "devices": [
            {
                "host": device.host,
                "device": device.name,
                "model": device.model,
                "busy_seconds": round(found.busy(device), 3),
                "idle_share": round(found.idle_share(device), 4),
            }
            for device in devices
        ],
        "gpus": len(found.gpus),
        "gpu_hours_busy": round(found.busy_gpu_hours, 4),
        "gpu_hours_wall": round(found.wall_gpu_hours, 4),
        **(costs(found, price) if price is not None else {}),
        "calls": [
            {
                "device": devices.index(span.device),
                "stage": span.stage,
                "iteration": span.iteration,
                "slice": span.part or None,
                "start": round(span.start - found.start, 3),
                "seconds": round(span.end - span.start, 3),
            }
            for span in found.spans
        ],
    }


def costs(found: Timeline, price: float) -> dict[str, float]:
    """The GPUs' cost, for all the wall time and for the busy time alone. Raises UserError if no call used a GPU."""
    if not found.gpus:
        raise UserError("--price is for GPUs, and no call of this run has used one; leave --price out")
    return {
        "price_per_gpu_hour": price,
        "cost_wall": round(price * found.wall_gpu_hours, 2),
        "cost_busy": round(price * found.busy_gpu_hours, 2),
    }
