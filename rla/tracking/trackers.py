"""Experiment trackers of a training stage: accelerate's tracker classes, by name. `run_curves` has those of a run.

    tensorboard      event files in `<run>/tensorboard/<stage>`
    wandb, trackio   a run for each run folder and stage, resumed by the id in `<run>/tracking/<stage>`

A point is `<stage>/<metric>` at a step, the number of updates of the whole run, so that each iteration continues the
curves of the one before. A stage that goes on after a kill logs the updates since its last saved one again, one that
is called again with --overwrite all of its own: TensorBoard shows the later points, W&B the earlier ones, trackio both.

The first of several processes logs, the others do nothing. A tracker starts with the first update: accelerate's classes
need its state, and only then have the processes met.

TensorBoard writes in a thread of its own. What the system refuses to it, such as a full disk, ends the stage in one
line.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from rla.config.sections import TrackingConfig
from rla.errors import UserError
from rla.plugins import from_checkout
from rla.processes.ranks import rank
from rla.store.atomic import unwritable, write_text

CORE = ("tensorboard",)  # comes with the package; the others are extras of their own name


@dataclass(slots=True, kw_only=True)
class Trackers:
    """The trackers of one stage, as a context manager. Raises UserError on entry where a package is missing."""

    config: TrackingConfig
    run: Path
    stage: str
    running: list[Any] = field(default_factory=list)
    opened: ExitStack = field(default_factory=ExitStack)
    refused: list[OSError] = field(default_factory=list)  # to threads

    def __enter__(self) -> Trackers:
        for name in self.config.trackers:
            refuse_missing(name)
        self.opened.enter_context(kept_for_owners(self.refused))
        return self

    def __exit__(self, *_: object) -> None:
        with self._told_once():
            self.opened.close()

    def log(self, metrics: Mapping[str, Any]) -> None:
        """The numbers among the `metrics` of one update, at the step `metrics["update"]`."""
        if rank() > 0 or not self.config.trackers:
            return
        step = metrics["update"]
        if not self.running:
            self._start(step)
        numbers = {key: value for key, value in metrics.items() if key != "update" and isinstance(value, int | float)}
        values = {f"{self.stage}/{key}": value for key, value in numbers.items()}
        with self._told_once():
            for tracker in self.running:
                tracker.log(values, step=step)

    @contextmanager
    def _told_once(self) -> Iterator[None]:
        """What was refused to a thread is raised here as UserError, whether or not its tracker raises it too."""
        place = self.run / "tensorboard" / self.stage
        try:
            yield
        except OSError as error:
            raise (unwritable(place, error) if error in self.refused else error) from None
        if self.refused:
            raise unwritable(place, self.refused[0])

    def _start(self, step: int) -> None:
        from accelerate import PartialState
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        PartialState()  # there already under a launcher, and in a single process one that joins nothing
        for name in dict.fromkeys(self.config.trackers):
            arguments, options = settings(name, run=self.run, stage=self.stage, step=step)
            tracker = LOGGER_TYPE_TO_CLASS[name](*arguments, **options)
            tracker.start()
            self.opened.callback(tracker.finish)
            self.running.append(tracker)


@contextmanager
def kept_for_owners(refused: list[OSError]) -> Iterator[None]:
    """Inside, an OSError that ends a thread goes to `refused`, if the thread keeps it for its owner as TensorBoard's
    does; Python would print its traceback.
    """
    before = threading.excepthook

    def keep(told: threading.ExceptHookArgs) -> None:
        error = told.exc_value
        if getattr(told.thread, "exception", None) is error and isinstance(error, OSError):
            refused.append(error)
        else:
            before(told)

    threading.excepthook = keep
    try:
        yield
    finally:
        threading.excepthook = before


def settings(name: str, *, run: Path, stage: str, step: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments and options of the class of tracker `name`; `step` is the first that will be logged."""
    if name == "tensorboard":
        # Points at and after purge_step that an earlier call has written are hidden: they are about to be repeated.
        return (stage, run / "tensorboard"), {"purge_step": step}
    project = os.environ.get(f"{name.upper()}_PROJECT", "rla")
    options = {"group": run.resolve().name, "resume": "allow"}
    key = identity(run, stage)
    if name == "wandb":
        return (project,), {**options, "id": key, "name": f"{options['group']}/{stage}", "dir": str(run)}
    return (project,), {**options, "name": f"{options['group']}-{key}"}


def identity(run: Path, stage: str) -> str:
    """What W&B and trackio know the stage's curves by. A run folder that is made anew gets another one."""
    file = run / "tracking" / stage
    if not file.exists():
        write_text(file, f"{stage}-{uuid.uuid4().hex[:8]}\n")
    return file.read_text().strip()


def refuse_missing(name: str) -> None:
    """UserError unless the package of tracker `name` is installed."""
    if installed_trackers(name):
        return
    remedy = f"run pip install {name}" if name in CORE else from_checkout(f"rla[{name}]")
    raise UserError(
        f"tracking.trackers: {name} needs the package {name}, which is not installed; {remedy}, "
        f"or set tracking.trackers to others, [] for none"
    )


def installed_trackers(package: str) -> bool:
    """By its metadata: a folder of that name in the working directory, such as W&B's own, can be imported too."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True
