"""Experiment trackers: the section `tracking`, the updates of a training stage, and the iterations of a run.

    tensorboard      event files in `<run>/tensorboard/<stage>`; of the run in `<run>/tensorboard/iterations`
    wandb, trackio   a run for each run folder and stage, resumed by the id in `<run>/tracking/<stage>`

A training stage logs `<stage>/<metric>` at a step, the number of updates of the whole run, so that each iteration
continues the curves of the one before. A stage that resumes after a kill logs the updates since its last checkpoint
again, and one that is called with --overwrite all of its updates: TensorBoard shows the later points, W&B the earlier
ones, trackio both. Trackers start with the first update: the processes of a launcher have met by then.

The curves of a run have a point per iteration. TensorBoard gets a new event file with all points on every call, which
hides the points of earlier files; those are removed once they are old. The other services cannot replace a point, so
each point is sent once; `<run>/tracking/iterations.json` lists the sent ones.

A class in the entry-point group `rla.tables` may add to the points: `named(row)` returns numbers of an evaluation by
name, and `tracked(run, config, iteration, tracker)` values of an iteration by tag for one of the services.

Event files are written without TensorBoard's writers: they need torch, and write in a thread, which prints a traceback
if the disk is full.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from rla.config import Config, resolved
from rla.config.schema import flattened, without_effect
from rla.errors import UserError
from rla.metrics.custom import brought, followed_figures
from rla.pipeline import Log, StageContext
from rla.plugins import from_checkout
from rla.store.atomic import unwritable, write_json, write_text
from rla.store.layout import artifact, further_splits, numbered_folders
from rla.store.manifest import optional_json

TRACKED = ("compute-rewards", "adapt-env", "train-rm", "evaluate")  # with figures of an iteration, or its last
REQUIRED = ("tensorboard",)  # installed with this package; the others are its extras of the same name
STAGE = "iterations"
EVENTS = "events.out.tfevents."
SAID = 200  # characters of a service's error
KEPT = 600.0  # seconds for which a viewer may still be reading an event file that has a successor


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingConfig:
    """Services that get curves of updates and of iterations. No output depends on it: it may change within a run."""

    # services that get the curves (`docs/guide/trackers.md`); [] for none
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = without_effect(("tensorboard",))

    def follow_training(self, run: Path, stage: str, config: Config) -> Trackers:
        return Trackers(trackers=self.trackers, run=run, stage=stage)

    def follow_call(self, ctx: StageContext) -> Callable[[], None]:
        """A call shows no curves if options name folders, or if several calls share the stage."""
        if not self.trackers or ctx.spec.name not in TRACKED or ctx.paths or "slice" in ctx.options:
            return lambda: None
        for name in self.trackers:
            refuse_missing(name)
        return partial(self.show_curves, ctx)

    def show_curves(self, ctx: StageContext) -> None:
        """Show the curves of the run. Errors are printed but do not fail the stage, whose outputs are complete."""
        try:
            track_run(ctx.run, run_points(ctx.run, ctx.config), resolved(ctx.config), self.trackers)
        except (UserError, OSError) as error:
            ctx.progress.note(f"no curves: {error}")


def refuse_missing(name: str) -> None:
    """Raise UserError unless the package of the tracker `name` is installed."""
    try:
        metadata.distribution(name)  # importing it could find a folder of that name, such as W&B's own
    except metadata.PackageNotFoundError:
        remedy = f"run pip install {name}" if name in REQUIRED else from_checkout(f"rla-study[{name}]")
        raise UserError(
            f"tracking.trackers: {name} needs the package {name}, which is not installed; {remedy}, "
            f"or set tracking.trackers to others, [] for none"
        ) from None


def service_arguments(name: str, *, run: Path, stage: str) -> tuple[str, dict[str, Any]]:
    """The project, and options of accelerate's class for the service `name`."""
    group = run.resolve().name
    file = run / "tracking" / stage
    if not file.exists():
        write_text(file, f"{stage}-{uuid.uuid4().hex[:8]}\n")
    key = file.read_text().strip()  # a run folder that was removed and made again gets another one
    options: dict[str, Any] = {"group": group, "resume": "allow", "name": f"{group}-{key}"}
    if name == "wandb":
        options |= {"id": key, "name": f"{group}/{stage}", "dir": str(run)}
    return os.environ.get(f"{name.upper()}_PROJECT", "rla"), options


def _started(name: str, *, run: Path, stage: str) -> Any:
    """A running service of accelerate. Raises any error of the service."""
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    PartialState()  # the classes need it; without a launcher it is of a single process
    project, options = service_arguments(name, run=run, stage=stage)
    tracker = LOGGER_TYPE_TO_CLASS[name](project, **options)
    tracker.start()
    return tracker


class _EventFile:
    """A new event file of TensorBoard in `folder`. Viewers hide points of earlier files from `step` on. Raises
    UserError if the file cannot be written.
    """

    def __init__(self, folder: Path, *, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        now = time.time()
        # Viewers read files in the order of the seconds in their names.
        self.path = folder / f"{EVENTS}{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{time.time_ns()}"
        version, start = Event(wall_time=now, file_version="brain.Event:2"), SessionLog(status=SessionLog.START)
        self.append(version, Event(wall_time=now, step=step, session_log=start))

    def append(self, *events: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as opened:
                records = RecordWriter(opened)
                for event in events:
                    records.write(event.SerializeToString())
        except OSError as error:
            raise unwritable(self.path.parent, error) from None

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """Write a point for each tag."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        self.append(Event(wall_time=time.time(), step=step, summary=summary))


@dataclass(slots=True, kw_only=True)
class Trackers:
    """The trackers of one stage, as a context manager. Raises UserError on entry if a package is missing."""

    trackers: Sequence[str]
    run: Path
    stage: str
    running: list[Any] = field(default_factory=list)
    opened: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Log:
        for name in self.trackers:
            refuse_missing(name)
        return self.log

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Log the numbers among the `metrics` of an update at the step `metrics["update"]`."""
        step = metrics["update"]
        for name in dict.fromkeys(self.trackers) if not self.running else ():
            if name == "tensorboard":
                self.running.append(_EventFile(self.run / name / self.stage, step=step))
            else:
                self.running.append(_started(name, run=self.run, stage=self.stage))
                self.opened.callback(self.running[-1].finish)
        numbers = {key: value for key, value in metrics.items() if key != "update" and isinstance(value, int | float)}
        for tracker in self.running:
            tracker.log({f"{self.stage}/{key}": value for key, value in numbers.items()}, step=step)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Values of one iteration by tag. `kind`: of the values. `tables`: from a service's name to its tables by tag."""

    kind: str
    iteration: int
    values: Mapping[str, float]
    tables: Sequence[Callable[[str], Mapping[str, Any]]] = ()

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.iteration}"


# tag of a tracker -> key of an iteration's figures
TAGS = {
    "success/training": "success",
    "reward/mean": "reward_mean",
    "judge/mu": "mu",
    "judge/right about steps": "rm_process_balanced",
    "judge/right about outcomes": "rm_outcome_accuracy",
    "tasks/accepted so far": "accepted_total",
    "tasks/one-sided": "one_sided_tasks",
    "episodes/steps": "mean_steps",
}


def brought_numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for one in brought("named") for name, value in one.named(row).items()}


def run_points(run: Path, config: Config | None = None) -> list[CurvePoint]:
    """A point for each iteration, with the tables of packages if `config` is given, for each evaluation, and for each
    iteration whose stages are all timed. Raises UserError for a file that is not JSON.
    """
    from rla.report.collect import evaluation_rows, iteration_row, seconds_of  # a config imports this module
    from rla.report.tables import LOOP

    points, followed = [], {figure.tag: figure.key for figure in followed_figures() if figure.tag}

    def add(kind: str, at: int, values: Mapping[str, Any]) -> None:
        known = {tag: float(value) for tag, value in values.items() if value is not None}
        more = [partial(one.tracked, run, config, at) for one in brought("tracked") if config and kind == "iteration"]
        points.append(CurvePoint(kind=kind, iteration=at, values=known, tables=more))

    for number in numbered_folders(run):
        if number > 0 and artifact(run, "metrics", number).exists():
            row = iteration_row(run, number)
            add("iteration", number, {tag: row.get(key) for tag, key in (TAGS | followed).items()})
    for root in (run, *further_splits(run).values()):
        for row in evaluation_rows(root):
            if row.get("success") is not None:
                split = row.get("split") or "held out"
                values = {f"success/{split}": row["success"], f"episodes/steps on {split}": row.get("mean_steps")}
                values |= {f"{name}/{split}": value for name, value in brought_numbers(row).items()}
                values |= {f"{tag} on {split}": row.get(key) for tag, key in followed.items()}
                add(f"evaluation on {split}", row["iteration"], values)
    spent: dict[tuple[int, str], float] = {}
    with suppress(UserError):  # a damaged record of times takes no other curve along
        spent = seconds_of(run)
    for number in sorted({iteration for iteration, _ in spent}):
        seconds = {f"seconds/{stage}": spent.get((number, stage)) for stage in LOOP}
        if None not in seconds.values():
            add("seconds", number, seconds)
    return points


def track_run(run: Path, points: Sequence[CurvePoint], parameters: Mapping[str, Any], trackers: Sequence[str]) -> None:
    """Show all `points` of a run; services also get its resolved `parameters`. Raises UserError if a package is
    missing, a file cannot be written, or a service does not take the points.
    """
    for name in dict.fromkeys(trackers) if points else ():
        refuse_missing(name)
        if name == "tensorboard":
            for file in sorted((run / name / STAGE).glob(f"{EVENTS}*"))[:-1]:  # a viewer needs the last file it read
                if file.stat().st_mtime < time.time() - KEPT:
                    file.unlink()
            events = _EventFile(run / name / STAGE, step=0)
            for point in sorted(points, key=lambda one: one.iteration):
                events.log(point.values, step=point.iteration)
        else:
            _send_points(name, run, points, parameters)


def _send_points(name: str, run: Path, points: Sequence[CurvePoint], parameters: Mapping[str, Any]) -> None:
    """Send the points that the service `name` has not got yet. Raises UserError if it does not take them."""
    record = run / "tracking" / f"{STAGE}.json"
    sent = optional_json(record) or {}
    new = [point for point in points if point.key not in sent.get(name, [])]
    if not new:
        return
    try:
        tracker = _started(name, run=run, stage=STAGE)
        plain = {key: str(one) if isinstance(one, list | dict) else one for key, one in flattened(parameters).items()}
        tracker.store_init_configuration(plain)
        if name == "wandb":  # its own steps must grow, and an evaluation may come after later iterations
            tracker.tracker.define_metric("*", step_metric="iteration")
        for point in new:
            tables = {tag: table for given in point.tables for tag, table in given(name).items()}
            values = {**point.values, **tables, "iteration": point.iteration}
            tracker.log(values, step=None if name == "wandb" else point.iteration)
        tracker.finish()
    except Exception as error:  # services and their transports have errors of their own
        said = "".join(letter if letter.isprintable() else " " for letter in f"{type(error).__name__}: {error}"[:SAID])
        raise UserError(f"{name} took no points ({said.strip()}); the next stage with curves sends them") from None
    write_json(record, {**sent, name: [*sent.get(name, []), *(point.key for point in new)]})
