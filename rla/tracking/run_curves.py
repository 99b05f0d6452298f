"""Curves of a whole run, a point for each iteration, in the trackers that the run is configured with.

    tensorboard      <run>/tensorboard/iterations, where every call writes an event file with all points
    wandb, trackio   a run of their own; these services replace no point, so each point is sent once:
                     <run>/tracking/iterations.json says which ones were

A call that is repeated therefore shows each point once: TensorBoard the latest value, the services the first.
The resolved parameters stand beside the curves: as text in TensorBoard, as the run's configuration in the services.
TensorBoard's own records are written, because this runs after stages that need no torch, and without its writer, whose
thread would print a traceback where the disk is full.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config.sections import TrackingConfig
from rla.errors import UserError
from rla.store.atomic import unwritable, write_json
from rla.tracking.trackers import refuse_missing, settings

STAGE = "iterations"
EVENTS = "events.out.tfevents."
SAID = 200  # characters of what a service says
KEPT = 600.0  # seconds for which a viewer may still be reading an event file that has a successor


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What is known of one iteration, of one kind. `values`: by tag. `when`: seconds since the epoch."""

    kind: str
    iteration: int
    values: Mapping[str, float]
    when: float

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.iteration}"


def track_run(run: Path, points: Sequence[CurvePoint], parameters: Mapping[str, Any], config: TrackingConfig) -> None:
    """Show `points`, all that are known, and the resolved `parameters`. UserError where a package is missing, where
    nothing can be written and where a service takes no points.
    """
    if not points:
        return
    for name in dict.fromkeys(config.trackers):
        refuse_missing(name)
        if name == "tensorboard":
            try:
                write_events(run / name / STAGE, points, parameters)
            except OSError as error:
                raise unwritable(run / name / STAGE, error) from None
        else:
            send_points(name, run, points, parameters, config)


def write_events(folder: Path, points: Sequence[CurvePoint], parameters: Mapping[str, Any]) -> None:
    """One event file with all points. It hides those of earlier files, which go once no viewer reads them: TensorBoard
    never leaves a file that was removed while it was the last one.
    """
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    text = text_pb("parameters", f"```\n{json.dumps(parameters, indent=2)}\n```")
    now = time.time()
    events = [
        Event(wall_time=now, file_version="brain.Event:2"),
        # A viewer that has the earlier points forgets them here.
        Event(wall_time=now, step=0, session_log=SessionLog(status=SessionLog.START)),
        Event(wall_time=now, step=0, summary=text),
    ]
    for point in sorted(points, key=lambda one: one.iteration):
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in point.values.items()]
        events.append(Event(wall_time=point.when, step=point.iteration, summary=Summary(value=values)))
    folder.mkdir(parents=True, exist_ok=True)
    earlier = sorted(folder.glob(f"{EVENTS}*"))
    # Viewers read files in the order of the seconds in their names.
    name = f"{EVENTS}{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{time.time_ns()}"
    with (folder / name).open("wb") as opened:
        records = RecordWriter(opened)
        for event in events:
            records.write(event.SerializeToString())
    for file in earlier[:-1]:
        if file.stat().st_mtime < time.time() - KEPT:
            file.unlink()


def send_points(
    name: str, run: Path, points: Sequence[CurvePoint], parameters: Mapping[str, Any], config: TrackingConfig
) -> None:
    """Those that the service `name` has not got yet. UserError where it takes none."""
    record = run / "tracking" / f"{STAGE}.json"
    sent = sent_before(record)
    new = [point for point in points if point.key not in sent.get(name, [])]
    if not new:
        return
    arguments, options = settings(name, run=run, stage=STAGE, step=0)
    try:
        _send(name, new, parameters, arguments, options)
    except Exception as error:  # each service has classes of its own, and its transport others, for being out of reach
        said = "".join(letter if letter.isprintable() else " " for letter in f"{type(error).__name__}: {error}"[:SAID])
        raise UserError(f"{name} took no points ({said.strip()}); the next stage with curves sends them") from None
    write_json(record, {**sent, name: [*sent.get(name, []), *(point.key for point in new)]})


def _send(
    name: str,
    points: Sequence[CurvePoint],
    parameters: Mapping[str, Any],
    arguments: tuple[Any, ...],
    options: Mapping[str, Any],
) -> None:
    """Through accelerate's class of the tracker. Raises whatever the service does."""
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    PartialState()  # accelerate's classes need it
    tracker = LOGGER_TYPE_TO_CLASS[name](*arguments, **options)
    tracker.start()
    tracker.store_init_configuration(dict(flat_parameters(parameters)))
    if name == "wandb":  # whose own steps must grow, while an evaluation may come after later iterations
        tracker.tracker.define_metric("*", step_metric="iteration")
    for point in points:
        values = {**point.values, "iteration": point.iteration}
        tracker.log(values, step=None if name == "wandb" else point.iteration)
    tracker.finish()


def sent_before(record: Path) -> dict[str, list[str]]:
    """Tracker -> the points that it has. A damaged record is as good as none: points are sent again."""
    try:
        found = json.loads(record.read_text())
    except (OSError, ValueError):
        return {}
    known = found.items() if isinstance(found, dict) else ()
    return {name: keys for name, keys in known if isinstance(keys, list)}


def flat_parameters(parameters: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with plain values, as trackers take them; a list becomes its text."""
    for key, value in parameters.items():
        if isinstance(value, Mapping):
            yield from flat_parameters(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value) if isinstance(value, list) else value
