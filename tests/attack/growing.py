"""The late cases of the small run, grown side by side: each begins from the complete run."""

from __future__ import annotations

import os
import traceback

from tests.attack.small_run import World, grow_late


def grow_late_cases(world: World, *, jobs: int) -> None:
    """Raises RuntimeError where an undisturbed call fails."""
    late = [case for case in world.cases if case.end and not world.known(case)]
    running: set[int] = set()
    failed = 0
    while late or running:
        while late and len(running) < jobs:
            case = late.pop()
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    grow_late(world, case)
                    status = 0
                except BaseException:
                    traceback.print_exc()
                os._exit(status)
            running.add(pid)
        pid, status = os.wait()
        running.discard(pid)
        failed += bool(status)
    if failed:
        raise RuntimeError(f"{failed} undisturbed calls failed, as said above")
