"""Progress of a stage: a rich bar with rate and time left on a terminal, plain lines in a log.

Plain lines come at most every ten seconds, and once at the end of longer work, so that a log of hundreds of short
stages stays readable. In brief mode they come every two minutes, and a bar disappears when its stage ends. The first
`FEW` steps show no time left, because they also load and compile.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TextIO

from rla.processes import rank
from rla.text import duration

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

INTERVAL, BRIEF_INTERVAL = 10.0, 120.0  # seconds between plain lines
FEW = 3  # steps


class LineProgress:
    """Plain lines on `stream`. `place`: a prefix, such as `iteration 7 of 12, `. `brief`: fewer lines."""

    def __init__(
        self, stream: TextIO, *, place: str = "", brief: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stream, self.place, self.brief, self.clock = stream, place, brief, clock
        self.interval = BRIEF_INTERVAL if brief else INTERVAL
        self.description, self.total, self.done, self.resumed = "", 0, 0, 0
        self.started = self.said = clock()

    def __enter__(self) -> Self:
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


class BarProgress(LineProgress):
    """A bar on the terminal `stream`, which is removed at the end if `brief`."""

    bar: RichProgress | None = None

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
        speed = self.bar.tasks[self.task].speed
        rate = "" if resumed or not speed else _rate_text(speed)
        self.bar.update(self.task, advance=count, rate=rate, extra=_shown_fields(fields).removeprefix(", "))

    def note(self, text: str) -> None:
        if self.bar is None:
            super().note(text)
        else:
            self.bar.console.print(text, markup=False, highlight=False)

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def _rate_text(rate: float) -> str:
    """`2.5/s`, or `40 s each` if a step takes longer than ten seconds."""
    return f"{1 / rate:.0f} s each" if 0 < rate < 0.1 else f"{rate:.1f}/s"


def _shown_fields(fields: dict[str, Any]) -> str:
    """`, name value` for each field, floats to three digits."""
    texts = (f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in fields.items())
    return "".join(f", {text}" for text in texts)


def make_progress(stream: TextIO | None = None, *, place: str = "", brief: bool = False) -> LineProgress:
    """A bar if `stream` (by default stderr) is a terminal, else lines; nothing if the rank is above 0."""
    if rank() > 0:
        return LineProgress(io.StringIO())
    stream = stream or sys.stderr
    return (BarProgress if stream.isatty() else LineProgress)(stream, place=place, brief=brief)
