"""What hostile programs cost: `python -m programs_tests.bench.bench_hostile waiting` or `... files`.

    waiting   `--programs` programs that sleep for 999 s, `--tests` tests each, at a wall clock of `--wall` seconds
    files     the kernel's slab memory while `--workers` programs create empty files for `--wall` seconds

Times of `waiting` scale with the wall clock of a test: a problem of 4 s has one of 16 s.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from collections import Counter
from pathlib import Path

from rla_programs.execution import Job, Limits, Sandbox, make_sandbox
from rla_programs.execution.records import ExecutionConfig

SLEEPS = "import time\ntime.sleep(999)\n"
FILES = """
import os, time
made = 0
try:
    while True:
        os.mkdir(f"d{made}")
        for _ in range(10_000):
            os.close(os.open(f"d{made // 10_000 * 10_000}/{made}", os.O_CREAT | os.O_WRONLY))
            made += 1
except OSError as error:
    print(made, error.strerror, flush=True)
time.sleep(999)
"""


def slab_mib() -> float:
    """Memory that the kernel holds in slabs."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Slab:"))


async def waiting(sandbox: Sandbox, *, programs: int, tests: int, wall_s: float) -> None:
    limits = Limits(wall_s=wall_s, cpu_s=wall_s / 4)
    jobs = [Job(source=f"# {number}\n{SLEEPS}", stdin=("",) * tests, limits=limits) for number in range(programs)]
    started = time.perf_counter()
    found = await asyncio.gather(*map(sandbox.run, jobs))
    ended = Counter(str(result.status) for results in found for result in results)
    print(f"{programs} programs x {tests} tests: {time.perf_counter() - started:.1f} s, {dict(ended)}")


async def files(sandbox: Sandbox, *, programs: int, wall_s: float) -> None:
    limits = Limits(wall_s=wall_s, cpu_s=wall_s)
    before = most = slab_mib()
    jobs = [Job(source=f"# {number}\n{FILES}", stdin=("",), limits=limits) for number in range(programs)]
    running = asyncio.ensure_future(asyncio.gather(*map(sandbox.run, jobs)))
    while not running.done():
        most = max(most, slab_mib())
        await asyncio.sleep(0.1)
    print(f"slab memory: {before:.0f} MiB before, at most {most:.0f}, {slab_mib():.0f} after")
    for (result,) in running.result():
        print(f"  {result.status}: {result.stdout.strip() or result.stderr.strip()[-200:]}")


async def measured(options: argparse.Namespace) -> None:
    sandbox = make_sandbox(ExecutionConfig(backend=options.backend, workers=options.workers))
    try:
        if options.what == "waiting":
            await waiting(sandbox, programs=options.programs, tests=options.tests, wall_s=options.wall)
        else:
            await files(sandbox, programs=options.workers, wall_s=options.wall)
    finally:
        await sandbox.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("waiting", "files"))
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--programs", type=int, default=128)
    parser.add_argument("--tests", type=int, default=8)
    parser.add_argument("--wall", type=float, default=1.0)
    options = parser.parse_args()
    print(f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    asyncio.run(measured(options))


if __name__ == "__main__":
    main()
