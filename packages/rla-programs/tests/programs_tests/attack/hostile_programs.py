"""Hostile programs in the sandbox: each harms its own result at most, and none learns what is hidden from it.

A program is made of a few attacks of `hostile_programs.txt` by lot. It runs on several inputs in each local backend
that works here. A secret lies in the memory, the environment and a file of the service, and may come out nowhere.
`rlimits` promises less: there a program has all files of the user, and none kills others. It would hit the machine of
whoever calls the attack if the one filter that forbids it failed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.attack.areas import HANGS, Numbered, Try, dice
from tests.attack.hostile import text
from tests.attack.small_run import World

SOURCES = Path(__file__).with_suffix(".txt").read_text()
ATTACKS, SEARCHES = (part.split("\n#---\n") for part in SOURCES.split("\n#=== searches for what is hidden\n"))

AFTER = """import os, sys
print(os.listdir("."), "fine" if not sys.stdin.read() and set(globals()) >= {"os", "sys"} else "forged")
"""


def program(lots: Random, attacks: Sequence[str]) -> str:
    """A source: attacks by lot, each guarded or not, and a search for the secret before or after them."""
    parts = [lots.choice(attacks) for _ in range(lots.choice((1, 1, 2)))]
    search = lots.choice(SEARCHES) if lots.random() < 0.4 else ""
    if lots.random() < 0.1:
        parts.append(text(lots)[:2000].replace("\x00", ""))
    order = [search, *parts] if lots.random() < 0.7 else [*parts, search]
    guarded = "\n".join(f"try:\n    exec({part!r})\nexcept Exception: pass" for part in order if part)
    return guarded if lots.random() < 0.7 else "\n".join(order)


@dataclass(frozen=True, slots=True)
class Programs(Numbered):
    """Each program on two inputs and, every other time, as a call."""

    name: str = "programs"
    together: int = 10
    seconds: float = 120.0
    rights: str | None = "root" if os.geteuid() == 0 else "user"  # nobody may not start root's interpreter

    def opened(self, world: World, scratch: Path) -> Try:
        secret = f"SECRET-{os.urandom(8).hex()}"
        os.environ["ATTACK"] = secret
        (scratch / "secret.txt").write_text(secret)
        backends = working()

        def tried(trial: str) -> str | None:
            lots = dice(world, f"{self.name}/{trial}")
            if not backends:
                return "no backend of the sandbox works here"
            name = lots.choice(sorted(backends))
            before = set(processes())
            source = program(lots, [one for one in ATTACKS if name != "rlimits" or "os.kill(" not in one])
            wrong = asyncio.run(attacked(backends[name](), source, lots, secret, open_files=name == "rlimits"))
            left = set(processes()) - before
            return (wrong and f"{name}: {wrong}") or (f"{name}: {len(left)} processes are left" if left else None)

        return tried


def working() -> dict[str, Any]:
    """The backends that work here, by name: each makes a sandbox."""
    from rla_programs.execution.bubblewrap import bubblewrap
    from rla_programs.execution.rlimits import rlimits

    from rla.errors import UserError

    found: dict[str, Any] = {}
    for name, make in (("bubblewrap", bubblewrap), ("rlimits", rlimits)):
        try:
            asyncio.run(make(workers=2).close())
        except UserError:
            continue
        found[name] = lambda make=make: make(workers=2)
    return found


async def attacked(sandbox: Any, source: str, lots: Random, secret: str, *, open_files: bool) -> str | None:
    """What is wrong after the program ran, and after a sound one that follows it."""
    from rla_programs.execution import Call, ExitStatus, Job, Limits
    from rla_programs.execution.standing import run_once

    limits = Limits(wall_s=1.0, cpu_s=1.0, memory_mb=256, processes=1 if open_files else lots.choice((1, 8)))
    calls = (Call(function="f", arguments=(1,)),) if lots.random() < 0.5 else ()
    started = time.monotonic()
    try:
        found = await sandbox.run(Job(source=source, stdin=("1\n", "2\n"), calls=calls, limits=limits))
        (sound,) = await sandbox.run(Job(source="print(input())", stdin=("fine",), limits=Limits(wall_s=30.0)))
        found.append(await run_once(sandbox, source, limits))
        after = await run_once(sandbox, AFTER, limits)  # in the same box, where the first has left it as it was
    finally:
        await sandbox.close()
    if len(found) != 3 + len(calls):
        return f"{len(found)} results of {3 + len(calls)}"
    if any(result.status is ExitStatus.ERROR for result in found):
        return f"the service failed: {next(r.detail for r in found if r.status is ExitStatus.ERROR)[:120]}"
    if (sound.status, sound.stdout) != (ExitStatus.OK, "fine\n"):
        return f"the next program ends with {sound.status}, {sound.stdout[:50]!r}"
    if (after.status, after.stdout) != (ExitStatus.OK, "[] fine\n"):
        return f"the next call of the tool ends with {after.status}, {after.stdout[:50]!r}, {after.stderr[-90:]!r}"
    if not open_files and any(secret in f"{result.stdout}{result.stderr}{result.value}" for result in found):
        return "it read the secret"
    seconds = time.monotonic() - started
    return f"{HANGS}it took {seconds:.0f} s" if seconds > 60 else None


def processes() -> list[int]:
    """Those that this one has started and that still run."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.append(int(name))
    return found
