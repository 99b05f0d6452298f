"""Progress of a stage: a rich bar with rate and time left on a terminal, plain lines in a log.

Plain lines come at most every ten seconds, and once at the end of longer work, so that a log of hundreds of short
stages stays readable. In brief mode they come every two minutes, and a bar disappears when its stage ends. The first
`FEW` steps show no time left, because they also load and compile.

A closing line names the inputs of a call, the outputs that it made or found complete, and its duration, after the
iteration if the stage is part of a loop. In brief mode, as in `rla run`, a stage prints only this line, with figures in
place of the inputs.

    iteration 7 of 12: rollout read 6/pool, 6/candidates, 6/policy; made 7/trajectories in 41 s
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rla.errors import UserError
from rla.pipeline import StageContext, StageSpec
from rla.pipeline.finished import RECORD, recorded_inputs
from rla.pipeline.run import BRIEF, LOOP
from rla.processes import rank
from rla.store.digests import digest
from rla.store.record import MANIFEST
from rla.store.texts import duration

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

INTERVAL, BRIEF_INTERVAL = 10.0, 120.0  # seconds between plain lines
FEW = 3  # steps


class LineProgress:
    """Plain lines on `stream`. `place`: a prefix of descriptions. `interval`: seconds between lines."""

    def __init__(
        self,
        stream: TextIO,
        *,
        place: str = "",
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stream, self.place, self.interval, self.clock = stream, place, interval, clock
        self.description, self.total, self.done, self.resumed = "", 0, 0, 0
        self.started = self.said = clock()

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def start(self, description: str, total: int) -> None:
        self._close()
        self.description, self.total = f"{self.place}{description}", total
        self.done = self.resumed = 0
        self.started = self.said = self.clock()

    def advance(self, count: int = 1, *, resumed: bool = False, **fields: Any) -> None:
        self.done += count
        if resumed:  # an earlier call did these steps, so they say nothing about the speed of this one
            self.resumed += count
            return
        now = self.clock()
        if now - self.said < self.interval or self.done >= self.total:
            return
        self.said = now
        made = self.done - self.resumed
        rate = made / max(now - self.started, 1e-9)
        left = f", {duration((self.total - self.done) / rate)} left" if made >= FEW else ""
        self.note(f"{self.description} {self.done}/{self.total}, {_rate_text(rate)}{left}{_shown_fields(fields)}")

    def note(self, text: str) -> None:
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def _close(self) -> None:
        seconds = self.clock() - self.started
        if self.description and seconds >= self.interval:
            rate = _rate_text((self.done - self.resumed) / seconds)
            self.note(f"{self.description} {self.done}/{self.total} in {duration(seconds)}, {rate}")
        self.description = ""


class BarProgress:
    """A bar on the terminal `stream`. `place`: a prefix of descriptions. `brief`: it is removed at the end."""

    def __init__(self, stream: TextIO, *, place: str = "", brief: bool = False) -> None:
        self.stream, self.place, self.brief = stream, place, brief
        self.bar: RichProgress | None = None

    def __enter__(self) -> BarProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def start(self, description: str, total: int) -> None:
        from rich import progress
        from rich.console import Console

        if self.bar is None:
            self.bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[rate]}"),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.fields[extra]}"),
                console=Console(file=self.stream),
                transient=self.brief,
            )
            self.bar.start()
        self.task = self.bar.add_task(f"{self.place}{description}", total=total, rate="", extra="")

    def advance(self, count: int = 1, *, resumed: bool = False, **fields: Any) -> None:
        if self.bar is None:
            return
        state = self.bar.tasks[self.task]
        rate = "" if resumed or not state.speed else _rate_text(state.speed)
        self.bar.update(self.task, advance=count, rate=rate, extra=_shown_fields(fields).removeprefix(", "))

    def note(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            self.stream.write(f"{text}\n")


def _rate_text(rate: float) -> str:
    """`2.5/s`, or `40 s each` if a step takes longer than ten seconds."""
    return f"{1 / rate:.0f} s each" if 0 < rate < 0.1 else f"{rate:.1f}/s"


def make_progress(stream: TextIO | None = None, *, place: str = "", brief: bool = False) -> LineProgress | BarProgress:
    """A bar if stderr is a terminal, else lines; nothing if the rank is above 0. `place`: a prefix of descriptions,
    such as `iteration 7 of 12, `. `brief`: fewer lines.
    """
    if rank() > 0:
        return LineProgress(io.StringIO())
    stream = stream or sys.stderr
    if stream.isatty():
        return BarProgress(stream, place=place, brief=brief)
    return LineProgress(stream, place=place, interval=BRIEF_INTERVAL if brief else INTERVAL)


def _shown_fields(fields: dict[str, Any]) -> str:
    """`, name value` for each field, floats to three digits."""
    texts = (f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in fields.items())
    return "".join(f", {text}" for text in texts)


RECORDS = (MANIFEST, RECORD, "config.json", "report.json")  # a folder has one, which is written anew with the folder
FIGURES = (
    "episodes",
    "won",
    "success",
    "judgements",
    "mu",
    "updates",
    "proposed",
    "valid",
    "accepted",
)  # in the closing line
Stamp = tuple[int, int] | None


def place_in_loop(spec: StageSpec, iteration: int) -> str:
    """`iteration 7 of 12`; empty outside of a loop, and for a stage that iterations share."""
    if LOOP not in os.environ or not spec.looped:
        return ""
    return f"iteration {iteration} of {os.environ[LOOP]}"


@dataclass(kw_only=True)
class ClosingLine:
    """What a call reads and makes, for its closing line. Created before the stage runs."""

    ctx: StageContext
    began: float = field(default_factory=time.monotonic)
    before: Mapping[Path, Stamp] = field(init=False)

    def __post_init__(self) -> None:
        self.before = {path: _stamp(path) for path in self.written()}

    def written(self) -> list[Path]:
        return [self.ctx.path(option) for option, _ in self.ctx.spec.writes]

    def lines(self, summary: Mapping[str, Any]) -> list[str]:
        """The last lines of a call: all of `summary`, then its `text`; or in brief mode one line with figures."""
        if BRIEF not in os.environ:
            lines = [f"{key}: {readable(value)}" for key, value in summary.items() if key != "text"]
            return [*lines, self.line(), *([str(summary["text"]).rstrip("\n")] if "text" in summary else [])]
        figures = ", ".join(f"{key} {readable(summary[key])}" for key in FIGURES if key in summary)
        return [f"{self.line(read=False)}; {figures}" if figures else self.line(read=False)]

    def line(self, *, read: bool = True) -> str:
        """The closing line, with the inputs if `read`."""
        spec, place = self.ctx.spec, place_in_loop(self.ctx.spec, self.ctx.iteration)
        sources = self.read() if read else []
        there = {path: found for path in self.written() if (found := _stamp(path)) is not None}
        made = [path for path, found in there.items() if found != self.before[path]]
        kept = [path for path in there if path not in made]
        done = {"read": sources, "made": made, "kept": kept}
        run = self.ctx.run
        names = {
            verb: ", ".join(str(path.relative_to(run) if path.is_relative_to(run) else path) for path in paths)
            for verb, paths in done.items()
        }
        said = "; ".join(f"{verb} {listed}" for verb, listed in names.items() if listed)
        seconds = time.monotonic() - self.began
        said_time = f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
        return f"{place}{': ' if place else ''}{spec.name} {said} in {said_time}"

    def read(self) -> list[Path]:
        """The inputs that the outputs record; all existing inputs if the outputs do not record any."""
        paths = dict.fromkeys(self.ctx.path(option) for option, _ in self.ctx.spec.reads)
        there = [path for path in paths if path.exists()]
        recorded = set[str]().union(*(recorded_inputs(path) or () for path in self.written() if path.is_dir()))
        return [path for path in there if _known_digest(path) in recorded] if recorded else there


def _known_digest(path: Path) -> str | None:
    """The digest of a folder; None if it is not complete."""
    try:
        return digest(path)
    except UserError:
        return None


def _stamp(path: Path) -> Stamp:
    """A value that changes if a file or folder is made again; None if it is not complete."""
    files = [path] if path.is_file() else [path / name for name in RECORDS]
    for file in files:
        if file.is_file():
            found = file.stat()
            return found.st_ino, found.st_mtime_ns
    return None


def readable(value: Any) -> str:
    """One line for a summary value; floats to four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {readable(item)}" for key, item in value.items())
    return str(value)
