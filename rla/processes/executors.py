"""Who runs the slices of a stage, as `launch.stage` says: one protocol, and what is said where slices fail.

An executor runs `rla <arguments> --slice i/n` for each slice that it is given, waits for all of them, and returns those
that failed. It knows nothing of shards. What is left to do after a failure stands in the shard's folder, so the same
call goes on with that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rla.errors import UserError
from rla.store.slices import Slice

NAMED = 8  # failures that an error names
MEND = "mend the cause"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceFailure:
    """A slice that did not end well: why, where it said so, and what a person may do before the same call."""

    part: Slice
    reason: str
    log: Path | None = None
    remedy: str = MEND

    def __str__(self) -> str:
        return f"{self.part} ({self.reason}{f'; {self.log}' if self.log else ''})"


class SliceExecutor(Protocol):
    """Raises UserError where it cannot start the slices at all. An interrupt ends what it has started."""

    def run(self, arguments: Sequence[str], slices: Sequence[Slice]) -> list[SliceFailure]: ...


def refuse_failures(stage: str, failures: Sequence[SliceFailure], *, total: int, runner: str) -> None:
    """UserError that names the failed slices of `total`. `runner`: what ran them, in one word and the plural."""
    if not failures:
        return
    more = f" and {len(failures) - NAMED} more" if len(failures) > NAMED else ""
    remedies = ", ".join(dict.fromkeys(failure.remedy for failure in failures))
    said = "" if any(failure.log for failure in failures) else ", as said above"
    raise UserError(
        f"{stage}: {len(failures)} of {total} {runner} failed, slices {', '.join(map(str, failures[:NAMED]))}{more}"
        f"{said}; {remedies} and call the same command: it goes on with what is left"
    )
