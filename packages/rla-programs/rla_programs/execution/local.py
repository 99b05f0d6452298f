"""Programs in boxes on this machine: a thread for each box, as many at once as the service has workers.

A program has its own box, and its runs are children of that box's controller, one after another. If a run touched the
working folder, the box is replaced before the next run, so no run sees the traces of another. For the same reason
programs that run once can share a box: `run_once` keeps boxes, and starts no new box for most programs.
"""

from __future__ import annotations

import asyncio
import platform
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rla_programs.execution import controller
from rla_programs.execution.allowance import Allowance
from rla_programs.execution.box import BoxError, Launch, Outcome, ProgramBox
from rla_programs.execution.filters import assembled
from rla_programs.execution.preload import WARM, mentioned
from rla_programs.execution.records import ExitStatus, Job, Limits, Result
from rla_programs.execution.standing import STARTER, StandingBoxes, run_in_new_box
from rla_programs.execution.verdict import controller_question, encoded, result

TRIES = 3  # boxes for one run
THREADS = 64  # that a program of one process may have

_working = set[Hashable]()  # kinds of sandboxes that have run a program in this process


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRequest:
    """The input of a launcher: the descriptor of the controller's socket, and the limits and program of the box."""

    control: int
    source: bytes
    preload: tuple[str, ...]
    limits: Limits


Launcher = Callable[[LocalRequest], Launch]


class Cancelled(Exception):
    """The job's result is no longer needed."""


@dataclass(slots=True, eq=False)
class Boxes:
    """The boxes of one job, one at a time."""

    make: Callable[[], ProgramBox]
    current: ProgramBox | None = None
    cancelled: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> ProgramBox:
        """The box for the next run. Raises BoxError if none starts, Cancelled."""
        if self.cancelled:
            raise Cancelled
        if self.current is None:
            made = self.make()
            with self.lock:
                self.current = made
                if self.cancelled:
                    made.kill()
        return self.current

    def drop(self) -> None:
        with self.lock:
            box, self.current = self.current, None
        if box is not None:
            box.close()

    def release(self) -> ProgramBox | None:
        """The box, which no longer belongs to this job; None if the job is cancelled or has none."""
        with self.lock:
            if self.cancelled:
                return None
            box, self.current = self.current, None
        return box

    def cancel(self) -> None:
        """From another thread: end the current run and prevent others."""
        with self.lock:
            self.cancelled = True
            if self.current is not None:
                self.current.kill()


class LocalSandbox:
    """`Sandbox` over boxes that `launch` starts. `bounds_tasks`: RLIMIT_NPROC counts a box and only that."""

    def __init__(self, launch: Launcher, *, workers: int, bounds_tasks: bool) -> None:
        self._launch, self._bounds_tasks = launch, bounds_tasks
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="sandbox")
        self._live: set[Boxes] = set()
        self._standing = StandingBoxes()

    async def run(self, job: Job) -> list[Result]:
        """See `Sandbox.run`. If cancelled, it ends the program."""
        if job.limits.processes > 1 and not self._bounds_tasks:
            detail = "here the number of processes cannot be bounded; set limits.processes to 1"
            return [Result(status=ExitStatus.ERROR, detail=detail)] * job.size
        return await self._awaited(self._results, job, Boxes(lambda: self.box(job)))

    async def run_once(self, source: str, limits: Limits) -> Result:
        """See `RunsOnce.run_once`. If a program can affect its box, or leave processes, the box is not kept."""
        if not self._bounds_tasks:
            return await run_in_new_box(self, source, limits)
        job = Job(source=STARTER, stdin=(source,), limits=limits)
        boxes = Boxes(lambda: self._standing.taken(limits) or self.box(job, preload=tuple(sorted(WARM))))
        (found,) = await self._awaited(self._results_in_standing, job, boxes)
        return found

    async def close(self) -> None:
        """See `Sandbox.close`."""
        for boxes in self._live:
            boxes.cancel()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        await asyncio.to_thread(self._standing.close)

    async def _awaited(self, work: Callable[[Job, Boxes], list[Result]], job: Job, boxes: Boxes) -> list[Result]:
        self._live.add(boxes)
        try:
            return await asyncio.wrap_future(self._threads.submit(work, job, boxes))
        finally:
            boxes.cancel()
            self._live.discard(boxes)

    def refusal(self, kind: Hashable = None) -> str:
        """The reason why no program can be run here; empty if programs can be run. A `kind` of sandbox that has run one
        in this process is not tried again.
        """
        if kind in _working:
            return ""
        job = Job(source="print(input())", stdin=("ok\n",))
        (answer,) = self._results(job, Boxes(lambda: self.box(job)))
        if answer.stdout != "ok\n":
            return answer.detail or answer.stderr or str(answer.status)
        if kind is not None:
            _working.add(kind)
        return ""

    def _results(self, job: Job, boxes: Boxes) -> list[Result]:
        allowance = Allowance(job)
        try:
            return [
                allowance.skipped() or allowance.spend(self._one(kind, asked, job.limits, boxes, allowance.wall_s))
                for kind, asked in questions(job)
            ]
        finally:
            boxes.drop()

    def _results_in_standing(self, job: Job, boxes: Boxes) -> list[Result]:
        """Like `_results`, for the single run of `starter.py`; an untouched box is kept for another job."""
        allowance, ((kind, asked),) = Allowance(job), questions(job)
        try:
            found = allowance.spend(self._one(kind, asked, job.limits, boxes, allowance.wall_s))
            if (box := boxes.release()) is not None:
                self._standing.keep(box, job.limits)
            return [found]
        finally:
            boxes.drop()

    def _one(self, kind: bytes, asked: bytes, limits: Limits, boxes: Boxes, wall_s: float) -> Result:
        """One run. If the box dies during it, which is not the program's fault, the run is repeated in another box."""
        reason = ""
        for _ in range(TRIES):
            box: ProgramBox | None = None
            try:
                box = boxes.take()
                outcome: Outcome = box.run(kind, asked, wall_s)
            except BoxError as error:
                reason, starved = str(error), box is not None and box.starved()
                boxes.drop()
                if starved:  # its first process was killed because of the program's memory
                    return Result(status=ExitStatus.MEMORY, detail=reason)
                continue
            if box.spent:
                boxes.drop()
            return result(outcome, limits, called=kind == controller.CALL)
        return Result(status=ExitStatus.ERROR, detail=f"no sandbox: {reason}")

    def box(self, job: Job, *, preload: tuple[str, ...] | None = None) -> ProgramBox:
        """A new box for the runs of a job's program. The caller closes it. `preload`: by default the modules that the
        program mentions. Raises BoxError.
        """
        limits, alone = job.limits, job.limits.processes == 1
        start = controller.START.pack(
            limits.wall_s,
            max(1, -int(-limits.cpu_s // 1)),
            limits.memory_mb << 20,
            1 + (THREADS if alone else limits.processes) if self._bounds_tasks else 0,  # 1: the controller
            limits.file_mb << 20,
            alone,
        )
        source, names = encoded(job.source), mentioned(job.source) if preload is None else preload
        return ProgramBox(
            lambda control: self._launch(LocalRequest(control=control, source=source, preload=names, limits=limits)),
            limits=limits,
            start=start + assembled(platform.machine(), alone=alone),
        )


def questions(job: Job) -> Iterator[tuple[bytes, bytes]]:
    """The stdin of each run, and its kind."""
    for text in job.stdin:
        yield controller.STDIN, encoded(text)
    for call in job.calls:
        yield controller.CALL, controller_question(call)
