"""Progress of a stage: a rich bar with rate and time left on a terminal, plain lines elsewhere.

Plain lines come at most every ten seconds, and once at the end of work that took longer than that: a log that
holds hundreds of short stages stays readable. If they are to be brief, they come every ten minutes, and a bar goes when
its stage ends. The first `FEW` steps, which also load and compile, tell no time left.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from rla.processes.ranks import rank

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

INTERVAL, BRIEF_INTERVAL = 10.0, 600.0  # seconds between plain lines
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


def duration(seconds: float) -> str:
    """8 s, 2 min 5 s, 1 h 3 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def shown_fields(fields: dict[str, Any]) -> str:
    """`, name value` for each field, floats to three digits."""
    texts = (f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in fields.items())
    return "".join(f", {text}" for text in texts)
