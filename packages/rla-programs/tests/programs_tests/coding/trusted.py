"""A `Sandbox` for programs that tests have written themselves: a fresh interpreter for each job, and no protection."""

from __future__ import annotations

from rla_programs.execution import ExitStatus, Job, Result

from programs_tests.coding.running import ran


class Trusted:
    """Keeps the jobs that it was given. `waits_from`: the run of a job that ends at the wall clock."""

    def __init__(self, *, failing: bool = False, waits_from: int | None = None) -> None:
        self._waits_from = waits_from
        self.jobs: list[Job] = []
        self.closed = False
        self._failing = failing

    async def run(self, job: Job) -> list[Result]:
        self.jobs.append(job)
        if self._failing:
            return [Result(status=ExitStatus.ERROR, detail="no box")] * job.size
        sent = [(job.source, None, list(job.stdin))]
        sent += [(job.source, call.function, [list(call.arguments)]) for call in job.calls]
        found = [(asked[1], answer) for asked, row in zip(sent, ran(sent), strict=True) for answer in row]
        results = [
            Result(status=ExitStatus.OK, stdout="" if called else value, value=value if called else None)
            if ok
            else Result(status=ExitStatus.NONZERO)
            for called, (ok, value) in found
        ]
        if self._waits_from is not None:
            skipped = job.size - self._waits_from - 1
            results[self._waits_from :] = [Result(status=ExitStatus.TIMEOUT)]
            results += [Result(status=ExitStatus.SKIPPED)] * skipped
        return results

    async def close(self) -> None:
        self.closed = True
