"""`make desktop-tasks`: every script and every wrong end of our own tasks, in the real applications.

python -m screens_tests.machines.all_tasks [--machines 2] [domain or scene ...]
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time

from rla_screens.desktop.episode import DesktopService
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.proving import ScriptRun, script_runs
from rla_screens.desktop.scenarios import Scenario
from rla_screens.desktop.tasks import own_scenarios


async def all_runs(chosen: list[Scenario], machines: int) -> list[ScriptRun]:
    service, found, left = DesktopService(DesktopParams(machines=machines)), list[ScriptRun](), iter(chosen)

    async def worked() -> None:
        for scenario in left:
            runs = [run async for run in script_runs(service, scenario)]
            flaws = [f"{run.what}: {run.flaw or ('won' if run.won else 'not won')}" for run in runs if not run.sound]
            print(f"{scenario.domain:13} {scenario.id:24} {len(runs)} runs  {'; '.join(flaws) or 'sound'}", flush=True)
            found.extend(runs)

    try:
        await asyncio.gather(*(worked() for _ in range(machines)))
    finally:
        await service.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("names", nargs="*")
    own = parser.parse_args()
    chosen = [one for one in own_scenarios() if not own.names or {one.id, one.domain} & set(own.names)]
    if shutil.which("soffice") is None:
        print("soffice is missing (Debian: libreoffice-calc libreoffice-gtk3): spreadsheets are left out")
        chosen = [one for one in chosen if one.domain != "spreadsheets"]
    began = time.monotonic()
    runs = asyncio.run(all_runs(chosen, own.machines))
    unsound = sum(not run.sound for run in runs)
    print(f"{len(chosen)} tasks, {len(runs)} runs, {unsound} unsound, {time.monotonic() - began:.0f} s")
    return 1 if unsound or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
