"""The wall clock of all runs of a program together, and when no further run begins.

    allowance = limits.program_s, or, where that is 0, wall_s + cpu_s * runs

A program within its CPU time never meets the second on a machine that has a core for it: its runs may take all of
their CPU time, and there is one wall clock more to wait. What ran into a wall clock has waited, or has not been given
a core for several times its CPU time; the runs after it would do the same, so they are not begun.
"""

from __future__ import annotations

from dataclasses import replace

from rla.envs.coding.execution.records import ExitStatus, Job, Result

WAITED = "not run: an earlier test ran into the wall clock"
SPENT = "not run: the earlier tests took the {:g} s that all tests of the program have together"


class Allowance:
    """Of one job; `spend` gets each of its results in their order."""

    def __init__(self, job: Job) -> None:
        self._limits = job.limits
        self._whole = job.limits.program_s or job.limits.wall_s + job.limits.cpu_s * job.size
        self._left = self._whole
        self._waited = False

    @property
    def wall_s(self) -> float:
        """The wall clock of the next run."""
        return min(self._limits.wall_s, self._left)

    def skipped(self) -> Result | None:
        """The result of the next run where it must not begin."""
        if self._waited:
            return Result(status=ExitStatus.SKIPPED, detail=WAITED)
        if self._left <= 0:
            return Result(status=ExitStatus.SKIPPED, detail=SPENT.format(self._whole))
        return None

    def spend(self, result: Result) -> Result:
        """The result, counted; one that the allowance has cut off says so."""
        cut = self._left < self._limits.wall_s
        self._left -= result.wall_s
        if result.status is not ExitStatus.TIMEOUT:
            return result
        self._waited = True
        return replace(result, detail=f"all tests of the program have {self._whole:g} s together") if cut else result
