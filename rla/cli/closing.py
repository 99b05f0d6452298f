"""The line that closes a stage call: what it read, what it made or found complete, how long it took; in a loop that
`rla run` turns, before it the iteration.

    iteration 7 of 12: rollout read 6/pool, 6/candidates, 6/policy; made 7/trajectories in 41 s

`rla run` has each stage say this line alone, with figures in place of what was read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla.cli.progress import duration
from rla.errors import UserError
from rla.pipeline.context import StageContext, StageSpec
from rla.pipeline.finished import RECORD, recorded_inputs
from rla.store.digests import digest
from rla.store.layout import PATHS
from rla.store.slices import MANIFEST

LOOP = "RLA_LOOP"  # set by `rla run`: how many iterations the loop has that the stage is a part of
BRIEF = "RLA_BRIEF"  # set by `rla run` unless it is to be verbose: a stage says one line
RECORDS = (MANIFEST, RECORD, "config.json", "report.json")  # one of them changes where a folder is made anew
FIGURES = ("episodes", "won", "success", "judgements", "mu", "updates", "proposed", "valid", "accepted")  # of one line
Stamp = tuple[int, int] | None


def place_in_loop(spec: StageSpec, iteration: int) -> str:
    """`iteration 7 of 12`; empty outside of a loop, and of a stage that iterations share."""
    if LOOP not in os.environ or not any("{i}" in PATHS[artifact] for _, artifact in spec.writes):
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
