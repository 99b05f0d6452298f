"""The total wall clock time of a program's runs, and the condition for starting no further run.

If `limits.program_s` is positive, it limits the total time. Otherwise the runs may use all of their CPU time, which
each run's own limit bounds, and wait for `limits.wall_s` in total:

    waited = sum over runs of max(0, wall - STRETCH * cpu - grace),  grace = max(GRACE_S, GRACE * limits.wall_s)

On a machine that gives it a core a quarter of the time, and that starts and ends a run within the grace, an honest
program has no waiting time, however many tests there are. A program that sleeps uses no CPU time. Its next run may take
as long as one that computes: the remaining waiting time, the grace, and cpu_s. So all of its runs together take at most
wall_s, plus cpu_s and a grace for each test. A program that sleeps three quarters of the time and computes the rest is
indistinguishable from an honest one on a busy machine: each of its runs has its own wall clock limit.

If a backend does not report CPU times, a run may have computed for cpu_s, so a sleeping program gets cpu_s more for
each test, like one that computes. A run that reaches the wall clock limit has waited; later runs would do the same and
are not started.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from rla_programs.execution.records import ExitStatus, Job, Result

STRETCH = 4.0  # wall clock per second of CPU time that a busy machine may take
# of each run, in seconds and as a share of its wall clock: time in which a busy machine starts and ends it
GRACE_S, GRACE = 0.25, 0.125
WAITED = "not run: an earlier test ran into the wall clock"
SPENT = "not run: the earlier tests took the {:g} s that all tests of the program have together"
SLEPT = "not run: the earlier tests waited for the {:g} s that all tests of the program may wait together"


class Allowance:
    """The allowance of one job; `spend` gets each of its results in order."""

    def __init__(self, job: Job) -> None:
        self._limits = limits = job.limits
        self._grace = max(GRACE_S, GRACE * limits.wall_s)
        self._whole = limits.program_s or limits.wall_s + limits.cpu_s * job.size
        self._left = limits.program_s or inf
        self._to_wait = inf if limits.program_s else limits.wall_s
        self._waited = False

    @property
    def wall_s(self) -> float:
        """The wall clock limit of the next run: its CPU time and the remaining waiting time."""
        return min(self._limits.wall_s, self._left, self._to_wait + self._grace + self._limits.cpu_s)

    @property
    def at_once(self) -> int:
        """How many runs may go on in parallel: together they take no more time than a program that computes."""
        return max(1, int(self._whole // self._limits.wall_s))

    def skipped(self) -> Result | None:
        """The result of the next run if it must not start, else None."""
        if self._waited:
            return Result(status=ExitStatus.SKIPPED, detail=WAITED)
        if self._left <= 0:
            return Result(status=ExitStatus.SKIPPED, detail=SPENT.format(self._limits.program_s))
        if self._to_wait <= 0:
            return Result(status=ExitStatus.SKIPPED, detail=SLEPT.format(self._limits.wall_s))
        return None

    def spend(self, result: Result) -> Result:
        """Count the result and return it. If the allowance has cut it off, or should have, the result says so."""
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
        """The wall clock time that the run's CPU time accounts for."""
        return self._limits.cpu_s if result.cpu_s is None else STRETCH * result.cpu_s
