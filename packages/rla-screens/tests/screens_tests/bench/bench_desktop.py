"""`bench-desktop`: start, step and memory of a local machine, and our way of doing a click beside the protocol's.

    python -m screens_tests.bench.bench_desktop [--rounds 10]

The protocol's way starts a Python for every action. It is imitated without pyautogui, whose import would come on top.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rla_screens.desktop.client import GuestClient
from rla_screens.desktop.local import LocalDesktop, walls_of
from rla_screens.desktop.params import DesktopParams

TEXT = "/home/user/Documents/a.txt"


def memory_mb(first: int) -> float:
    """Of all processes of a machine, what is shared divided among those that share it (PSS)."""
    space, total = os.readlink(f"/proc/{first}/ns/pid"), 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(place / "ns/pid") == space:
                lines = (place / "smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return total / 1024


async def timed(work: Callable[[], Awaitable[object]], rounds: int) -> float:
    """The median, in milliseconds."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        await work()
        found.append(time.perf_counter() - began)
    return 1000 * statistics.median(found)


async def measured_machine(rounds: int) -> list[tuple[str, str]]:
    own = DesktopParams()
    machine = LocalDesktop(own, walls_of(own))
    starts = await timed(machine.reset, rounds)
    client = GuestClient(machine.address, longest_s=60)
    await client.greet()
    bare = memory_mb(machine._first)
    await client.upload(TEXT, b"hello\n")
    began = time.perf_counter()
    await client.open_file(TEXT)
    opened = time.perf_counter() - began

    async def step() -> None:
        await client.do([{"motion": "click", "at": [640, 400]}])
        await client.screenshot(still_ms=1500)

    async def as_program() -> None:
        await client.execute(["python", "-c", "import ctypes; 'another Python'"])

    clicks = await timed(lambda: client.do([{"motion": "click", "at": [640, 400]}]), rounds)
    programs = await timed(as_program, rounds)
    rows = [
        ("start (a reset is a new machine)", f"{starts:.0f} ms"),
        ("screenshot", f"{await timed(client.screenshot, rounds):.0f} ms"),
        ("click", f"{clicks:.0f} ms"),
        ("an empty program of Python", f"{programs:.0f} ms, {programs / clicks:.1f} x a click"),
        ("step: click, and a screenshot that stands still", f"{await timed(step, rounds):.0f} ms"),
        ("window of mousepad", f"{1000 * opened:.0f} ms"),
        ("memory of a bare machine (PSS)", f"{bare:.0f} MB"),
        ("memory with mousepad (PSS)", f"{memory_mb(machine._first):.0f} MB"),
    ]
    await client.close()
    await machine.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    for name, value in asyncio.run(measured_machine(parser.parse_args().rounds)):
        print(f"{name:50} {value}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
