"""The wall clock of all runs of a program together, and when no further run begins.

Where `limits.program_s` is more than 0, it is what all runs may take. Otherwise they may take all of their CPU time,
which each run's own limit bounds, and wait for `limits.wall_s` together:

    waited = sum over runs of max(0, wall - STRETCH * cpu - grace),  grace = max(GRACE_S, GRACE * limits.wall_s)

An honest program waits for nothing on a machine that gives it a core a quarter of the time, and that starts and ends a
run within the grace, however many tests it has. A program that sleeps computes nothing. Its next run gets the clock of
one that computes: what is left to wait, and the grace, and cpu_s. So all of its runs together take wall_s, cpu_s and a
grace for each test at most. A program that sleeps three quarters of the time and computes the rest cannot be told from
an honest one on a busy machine: each of its runs has its own wall clock.

Of a backend that does not tell CPU times, a run may have computed for cpu_s. So a program that sleeps has cpu_s more
for each test there, as one that computes has. What ran into a wall clock has waited; the runs after it would do the
same, so they are not begun.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from rla_programs.execution.records import ExitStatus, Job, Result

STRETCH = 4.0  # wall clock for each second of CPU time that a busy machine may take
GRACE_S, GRACE = (
    0.25,
    0.125,
)  # of each run, seconds and share of its wall clock: until a busy machine starts and ends it
WAITED = "not run: an earlier test ran into the wall clock"
SPENT = "not run: the earlier tests took the {:g} s that all tests of the program have together"
SLEPT = "not run: the earlier tests waited for the {:g} s that all tests of the program may wait together"


class Allowance:
    """Of one job; `spend` gets each of its results in their order."""

    def __init__(self, job: Job) -> None:
        self._limits = limits = job.limits
        self._grace = max(GRACE_S, GRACE * limits.wall_s)
        self._whole = limits.program_s or limits.wall_s + limits.cpu_s * job.size
        self._left = limits.program_s or inf
        self._to_wait = inf if limits.program_s else limits.wall_s
        self._waited = False

    @property
    def wall_s(self) -> float:
        """The wall clock of the next run: it may compute, and wait for what is left to wait."""
        return min(self._limits.wall_s, self._left, self._to_wait + self._grace + self._limits.cpu_s)

    @property
    def at_once(self) -> int:
        """How many runs may go on side by side: together they take no more than a program that computes."""
        return max(1, int(self._whole // self._limits.wall_s))

    def skipped(self) -> Result | None:
        """The result of the next run where it must not begin."""
        if self._waited:
            return Result(status=ExitStatus.SKIPPED, detail=WAITED)
        if self._left <= 0:
            return Result(status=ExitStatus.SKIPPED, detail=SPENT.format(self._limits.program_s))
        if self._to_wait <= 0:
            return Result(status=ExitStatus.SKIPPED, detail=SLEPT.format(self._limits.wall_s))
        return None

    def spend(self, result: Result) -> Result:
        """The result, counted; one that the allowance has cut off, or would have, says so."""
        wall_s = self.wall_s
        cut = wall_s < self._limits.wall_s
        if cut and result.wall_s > wall_s and result.status is not ExitStatus.TIMEOUT:
            result = replace(result, status=ExitStatus.TIMEOUT, exit_code=None)
        self._left -= result.wall_s
        self._to_wait -= max(0.0, result.wall_s - self._computed(result) - self._grace)
        if result.status is not ExitStatus.TIMEOUT:
            return result
        self._waited = True
        return replace(result, detail=self._together()) if cut else result

    def _together(self) -> str:
        if self._limits.program_s:
            return f"all tests of the program have {self._limits.program_s:g} s together"
        return f"all tests of the program may wait for {self._limits.wall_s:g} s together"

    def _computed(self, result: Result) -> float:
        """The wall clock that the run may have taken for what it computed."""
        return self._limits.cpu_s if result.cpu_s is None else STRETCH * result.cpu_s
