"""Progress of a stage: a rich bar with rate and time left on a terminal, plain lines elsewhere.

Plain lines come at most every ten seconds, and once at the end of work that took longer than that: a log that
holds hundreds of short stages stays readable. If they are to be brief, they come every two minutes, and a bar goes when
its stage ends. The first `FEW` steps, which also load and compile, tell no time left.

A line closes a stage call: what it read, what it made or found complete, how long it took; in a loop that `rla run`
turns, before it the iteration. `rla run` has each stage say this line alone, with figures in place of what was read.

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
from rla.pipeline.context import StageContext, StageSpec
from rla.pipeline.finished import RECORD, recorded_inputs
from rla.processes.ranks import rank
from rla.store.digests import digest
from rla.store.record import MANIFEST
from rla.store.texts import duration

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

INTERVAL, BRIEF_INTERVAL = 10.0, 120.0  # seconds between plain lines
FEW = 3  # steps


class LineProgress:
    """Plain lines on `stream`; `place` stands before what is counted, `clock` gives seconds, `interval` those between
    lines.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        place: str = "",
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stream, self.place, self.interval, self.clock = stream, place, interval, clock
        self.description, self.total, self.done = "", 0, 0
        self.started = self.said = clock()

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def start(self, description: str, total: int) -> None:
        self._close()
        self.description, self.total, self.done = f"{self.place}{description}", total, 0
        self.started = self.said = self.clock()

    def advance(self, count: int = 1, **fields: Any) -> None:
        self.done += count
        now = self.clock()
        if now - self.said < self.interval or self.done >= self.total:
            return
        self.said = now
        rate = self.done / max(now - self.started, 1e-9)
        left = f", {duration((self.total - self.done) / rate)} left" if self.done >= FEW else ""
        self.note(f"{self.description} {self.done}/{self.total}, {rate:.1f}/s{left}{shown_fields(fields)}")

    def note(self, text: str) -> None:
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def _close(self) -> None:
        seconds = self.clock() - self.started
        if self.description and seconds >= self.interval:
            rate = self.done / seconds
            self.note(f"{self.description} {self.done}/{self.total} in {duration(seconds)}, {rate:.1f}/s")
        self.description = ""


class BarProgress:
    """A bar that rich draws on the terminal `stream`; `place` stands before what is counted. `brief`: nothing is left
    of it.
    """

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

    def advance(self, count: int = 1, **fields: Any) -> None:
        if self.bar is None:
            return
        state = self.bar.tasks[self.task]
        rate = f"{state.speed:.1f}/s" if state.speed else ""
        self.bar.update(self.task, advance=count, rate=rate, extra=shown_fields(fields).removeprefix(", "))

    def note(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            self.stream.write(f"{text}\n")


def make_progress(stream: TextIO | None = None, *, place: str = "", brief: bool = False) -> LineProgress | BarProgress:
    """The bar where stderr is a terminal, lines elsewhere; of several processes only the first one speaks. `place`:
    where the call stands in a loop, such as `iteration 7 of 12, `. `brief`: a stage is to say little more than a line.
    """
    if rank() > 0:
        return LineProgress(io.StringIO())
    stream = stream or sys.stderr
    if stream.isatty():
        return BarProgress(stream, place=place, brief=brief)
    return LineProgress(stream, place=place, interval=BRIEF_INTERVAL if brief else INTERVAL)


def shown_fields(fields: dict[str, Any]) -> str:
    """`, name value` for each field, floats to three digits."""
    texts = (f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in fields.items())
    return "".join(f", {text}" for text in texts)


LOOP = "RLA_LOOP"  # set by `rla run`: how many iterations the loop has that the stage is a part of
BRIEF = "RLA_BRIEF"  # set by `rla run` unless it is to be verbose: a stage says one line
RECORDS = (MANIFEST, RECORD, "config.json", "report.json")  # one of them changes where a folder is made anew
FIGURES = ("episodes", "won", "success", "judgements", "mu", "updates", "proposed", "valid", "accepted")  # of one line
Stamp = tuple[int, int] | None


def place_in_loop(spec: StageSpec, iteration: int) -> str:
    """`iteration 7 of 12`; empty outside of a loop, and of a stage that iterations share."""
    if LOOP not in os.environ or not spec.looped:
        return ""
    return f"iteration {iteration} of {os.environ[LOOP]}"


@dataclass(kw_only=True)
class StageAccount:
    """Made before the stage runs; `line` is for afterwards."""

    ctx: StageContext
    began: float = field(default_factory=time.monotonic)
    before: Mapping[Path, Stamp] = field(init=False)

    def __post_init__(self) -> None:
        self.before = {path: stamp(path) for path in self.written()}

    def written(self) -> list[Path]:
        return [self.ctx.path(option) for option, _ in self.ctx.spec.writes]

    def told(self, summary: Mapping[str, Any]) -> list[str]:
        """What the call prints at its end: all of `summary`, or its figures in one line if a loop is to be brief."""
        if BRIEF not in os.environ:
            return summary_lines(summary, self.line())
        figures = ", ".join(f"{key} {readable(summary[key])}" for key in FIGURES if key in summary)
        return [f"{self.line(read=False)}; {figures}" if figures else self.line(read=False)]

    def line(self, *, read: bool = True) -> str:
        """`read`: also what was read."""
        spec, place = self.ctx.spec, place_in_loop(self.ctx.spec, self.ctx.iteration)
        sources = self.read() if read else []
        there = {path: found for path in self.written() if (found := stamp(path)) is not None}
        made = [path for path, found in there.items() if found != self.before[path]]
        kept = [path for path in there if path not in made]
        done = {"read": sources, "made": made, "kept": kept}
        said = "; ".join(f"{verb} {self.names(paths)}" for verb, paths in done.items() if paths)
        return f"{place}{': ' if place else ''}{spec.name} {said} in {seconds_text(time.monotonic() - self.began)}"

    def read(self) -> list[Path]:
        """The inputs that the outputs record; where they record none, those that are there."""
        paths = dict.fromkeys(self.ctx.path(option) for option, _ in self.ctx.spec.reads)
        there = [path for path in paths if path.exists()]
        recorded = set[str]().union(*(recorded_inputs(path) or () for path in self.written() if path.is_dir()))
        return [path for path in there if known_digest(path) in recorded] if recorded else there

    def names(self, paths: list[Path]) -> str:
        """As they lie in the run."""
        run = self.ctx.run
        return ", ".join(str(path.relative_to(run) if path.is_relative_to(run) else path) for path in paths)


def known_digest(path: Path) -> str | None:
    """None of what is not complete."""
    try:
        return digest(path)
    except UserError:
        return None


def stamp(path: Path) -> Stamp:
    """What changes where a file or a folder is made anew; None for one that is not complete."""
    files = [path] if path.is_file() else [path / name for name in RECORDS]
    for file in files:
        if file.is_file():
            found = file.stat()
            return found.st_ino, found.st_mtime_ns
    return None


def seconds_text(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def summary_lines(summary: Mapping[str, Any], closing: str) -> list[str]:
    """What the stage returned, a line for each key, then the closing one; `text` stands last and for itself."""
    lines = [f"{key}: {readable(value)}" for key, value in summary.items() if key != "text"]
    return [*lines, closing, *([str(summary["text"]).rstrip("\n")] if "text" in summary else [])]


def readable(value: Any) -> str:
    """One line for a summary value; floats to four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {readable(item)}" for key, item in value.items())
    return str(value)
