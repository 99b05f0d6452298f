"""The sandbox service against an unconfined `python -I` for each test, and what it leaves behind: `bench-exec`.

Both run the same programs on the same inputs, as many at once, in turns within one run, so that other work on the
machine meets both. Then `--programs` programs of `--tests` tests each, and the processes, descriptors, files and memory
before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rla_programs.execution import ExitStatus, Job, Limits, Sandbox, make_sandbox
from rla_programs.execution.records import ExecutionConfig

from programs_tests.execution.sandboxes import descendants

# Each in the manner of an answer to a contest problem: read numbers, compute for a moment, print.
PROGRAMS = (
    "n = int(input())\nprint(sum(map(int, input().split())))\n",
    "import sys\ndata = sys.stdin.read().split()\nprint(*sorted(map(int, data[1:])))\n",
    "from collections import Counter\ninput()\nc = Counter(input().split())\nprint(max(c.values()))\n",
    "import math\nn = int(input())\na = list(map(int, input().split()))\nprint(math.gcd(*a))\n",
    "n = int(input())\nbest = run = 0\nfor x in map(int, input().split()):\n    run = max(0, run + x)\n"
    "    best = max(best, run)\nprint(best)\n",
)
LIMITS = Limits(wall_s=60.0, cpu_s=30.0)


@dataclass(slots=True)
class Spent:
    """Seconds of one way, and how many tests it ran."""

    seconds: float = 0.0
    runs: int = 0

    @property
    def rate(self) -> float:
        return self.runs / self.seconds


def inputs(tests: int, seed: int) -> tuple[str, ...]:
    return tuple(
        f"20\n{' '.join(str((seed * 7919 + t * 104729 + i * i) % 1000) for i in range(20))}\n" for t in range(tests)
    )


def job(index: int, tests: int) -> Job:
    return Job(source=f"# {index}\n{PROGRAMS[index % len(PROGRAMS)]}", stdin=inputs(tests, index), limits=LIMITS)


async def served(sandbox: Sandbox, jobs: list[Job]) -> list[list[str]]:
    answers = await asyncio.gather(*(sandbox.run(job) for job in jobs))
    assert all(result.status is ExitStatus.OK for results in answers for result in results), answers
    return [[result.stdout for result in results] for results in answers]


def plain(jobs: list[Job], pool: ThreadPoolExecutor, folder: Path) -> list[list[str]]:
    """A new interpreter for each test."""

    def one(path: Path, text: str) -> str:
        return subprocess.run(
            [sys.executable, "-I", path], input=text, capture_output=True, text=True, check=True
        ).stdout

    waiting = []
    for index, job in enumerate(jobs):
        path = folder / f"{index}.py"
        path.write_text(job.source)
        waiting.append([pool.submit(one, path, text) for text in job.stdin])
    return [[future.result() for future in row] for row in waiting]


def compare(loop: asyncio.Runner, sandbox: Sandbox, *, turns: int, programs: int, tests: int, workers: int) -> None:
    """Both ways in turns, the one that is first the second the next time; what they print is the same."""
    ours, theirs = Spent(), Spent()
    with ThreadPoolExecutor(workers) as pool, tempfile.TemporaryDirectory() as folder:
        ways: list[tuple[Spent, Callable[[list[Job]], list[list[str]]]]] = [
            (ours, lambda jobs: loop.run(served(sandbox, jobs))),
            (theirs, lambda jobs: plain(jobs, pool, Path(folder))),
        ]
        for turn in range(turns):
            jobs = [job(turn * programs + index, tests) for index in range(programs)]
            printed = []
            for spent, work in ways if turn % 2 else reversed(ways):
                started = time.perf_counter()
                printed.append(work(jobs))
                spent.seconds += time.perf_counter() - started
                spent.runs += programs * tests
            assert printed[0] == printed[1]
    print(
        f"{tests:3} tests a program, {workers} at once: service {ours.rate:6.1f} executions/s, "
        f"python -I {theirs.rate:6.1f}, ratio {ours.rate / theirs.rate:.2f}",
        flush=True,
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """What a leak would raise."""

    processes: int
    descriptors: int
    files: int
    memory_mib: float

    @classmethod
    def now(cls) -> Standing:
        return cls(
            processes=len(descendants()),
            descriptors=len(os.listdir("/proc/self/fd")),
            files=len(os.listdir(tempfile.gettempdir())),
            memory_mib=int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20,
        )


def soak(loop: asyncio.Runner, sandbox: Sandbox, *, programs: int, tests: int) -> None:
    loop.run(served(sandbox, [job(index, tests) for index in range(20)]))  # what grows once has grown
    before, started = Standing.now(), time.perf_counter()
    for first in range(0, programs, 50):
        loop.run(served(sandbox, [job(index, tests) for index in range(first, min(first + 50, programs))]))
    seconds = time.perf_counter() - started
    print(f"{programs} programs x {tests} tests: {seconds:.1f} s, {programs * tests / seconds:.1f} executions/s")
    print(f"  before {before}\n  after  {Standing.now()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--tests", type=int, default=20)
    options = parser.parse_args()
    workers = options.workers or len(os.sched_getaffinity(0))
    with asyncio.Runner() as loop, tempfile.TemporaryDirectory() as tempfile.tempdir:
        sandbox = make_sandbox(ExecutionConfig(backend=options.backend, workers=workers))
        for tests in (20, 5, 1):
            compare(loop, sandbox, turns=options.turns, programs=4 if tests > 1 else 20, tests=tests, workers=workers)
        soak(loop, sandbox, programs=options.programs, tests=options.tests)
        loop.run(sandbox.close())


if __name__ == "__main__":
    main()
