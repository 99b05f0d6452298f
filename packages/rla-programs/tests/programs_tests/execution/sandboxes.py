"""Sandboxes of every local backend that runs here, and what a job leaves running."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rla_programs.execution import Call, Job, Limits, Result, Sandbox
from rla_programs.execution.bubblewrap import Bubblewrap, bubblewrap
from rla_programs.execution.local import LocalSandbox
from rla_programs.execution.rlimits import rlimits

from rla.errors import UserError

LOCAL = ("bubblewrap", "rlimits")
AS_USER = "bubblewrap as a user"
MAKERS = {"bubblewrap": bubblewrap, "rlimits": rlimits}
PATIENT = Limits(wall_s=60.0, cpu_s=30.0)  # for what is expected to end by itself


@cache
def shared(backend: str) -> LocalSandbox:
    """One for all tests, as a stage has one for all its jobs."""
    return made(backend)


def made(backend: str, *, workers: int = 2) -> LocalSandbox:
    """The sandbox of a backend; skips the test where it cannot work on this machine, with the reason."""
    try:
        return as_user(workers) if backend == AS_USER else MAKERS[backend](workers=workers)
    except UserError as error:
        pytest.skip(str(error))


def as_user(workers: int) -> LocalSandbox:
    """With a user namespace, as it is for everybody but root. Raises UserError."""
    launch = Bubblewrap(shutil.which("bwrap") or "bwrap", as_root=False, numbering=True)
    sandbox = LocalSandbox(launch, workers=workers, bounds_tasks=True)
    if refusal := sandbox.refusal():
        raise UserError(refusal)
    return sandbox


def in_sandbox(backend: str, main: Callable[[Sandbox], Awaitable[Any]]) -> Any:
    """What `main` gives; nothing that ran for it is left."""

    async def timed() -> Any:
        async with asyncio.timeout(120):
            return await main(shared(backend))

    before = descendants()
    found = asyncio.run(timed())
    assert gone(descendants() - before)
    return found


def results(
    backend: str, source: str, *stdin: str, calls: tuple[Call, ...] = (), limits: Limits = PATIENT
) -> list[Result]:
    """One job in a sandbox of its own; without stdin and calls: one run without input."""
    texts = stdin or (() if calls else ("",))
    found: list[Result] = in_sandbox(
        backend, lambda sandbox: sandbox.run(Job(source=source, stdin=texts, calls=calls, limits=limits))
    )
    return found


def one(backend: str, source: str, *, stdin: str = "", limits: Limits = PATIENT) -> Result:
    (found,) = results(backend, source, stdin, limits=limits)
    return found


def descendants() -> set[int]:
    """The processes that this one started, and those that they started."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, size = {os.getpid()}, 0
    while len(found) > size:
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found - {os.getpid()}


def gone(pids: set[int]) -> bool:
    """Whether none of them runs any more; a killed process may take a moment."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.02)
    return False
