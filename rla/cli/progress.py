"""Progress of a stage: one line with rate and time left that a terminal redraws, and lines in a log.

Lines of a log come at most every ten seconds, and once at the end of longer work, so that a log of hundreds of short
stages stays readable; in brief mode they come every two minutes. The first `FEW` steps show no time left, because they
also load and compile.
"""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, Self, TextIO

from rla.processes import rank
from rla.text import duration

INTERVAL, BRIEF_INTERVAL = 10.0, 120.0  # seconds between lines of a log
REDRAWN = 0.2  # seconds between lines of a terminal
CLEAR = "\r\x1b[K"  # back to the beginning of the line, and remove it
FEW = 3  # steps


class LineProgress:
    """Lines on `stream`. `place`: a prefix, such as `iteration 7 of 12, `. `brief`: fewer lines in a log."""

    def __init__(
        self, stream: TextIO, *, place: str = "", brief: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stream, self.place, self.clock = stream, place, clock
        self.terminal = stream.isatty()
        self.longer = BRIEF_INTERVAL if brief else INTERVAL  # work that has a line at its end
        self.interval = REDRAWN if self.terminal else self.longer
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
        if self.terminal:
            self._write(f"{CLEAR}{self.description} 0/{total}\r")

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
        shown = (f", {key} {one:.3g}" if isinstance(one, float) else f", {key} {one}" for key, one in fields.items())
        line = f"{self.description} {self.done}/{self.total}, {_rate_text(rate)}{left}{''.join(shown)}"
        if self.terminal:
            self._write(f"{CLEAR}{line[: shutil.get_terminal_size().columns - 1]}\r")  # messages begin their own line
        else:
            self.note(line)

    def note(self, text: str) -> None:
        self._write(f"{CLEAR * self.terminal}{text}\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()

    def _close(self) -> None:
        seconds = self.clock() - self.started
        if self.description and seconds >= self.longer:
            rate = _rate_text((self.done - self.resumed) / seconds)
            self.note(f"{self.description} {self.done}/{self.total} in {duration(seconds)}, {rate}")
        elif self.description and self.terminal:
            self._write(CLEAR)
        self.description = ""


def _rate_text(rate: float) -> str:
    """`2.5/s`, or `40 s each` if a step takes longer than ten seconds."""
    return f"{1 / rate:.0f} s each" if 0 < rate < 0.1 else f"{rate:.1f}/s"


def make_progress(stream: TextIO | None = None, *, place: str = "", brief: bool = False) -> LineProgress:
    """Progress on `stream` (by default stderr); nothing is shown if the rank is above 0."""
    return LineProgress(io.StringIO() if rank() > 0 else stream or sys.stderr, place=place, brief=brief)
