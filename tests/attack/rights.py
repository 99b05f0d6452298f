"""Folders that may not be written, met by a user who is not root: one error in one line, and nothing lost.

A trial takes the right to write from one folder that a call changes, or from its file. With the right back, the call
made again comes to what an undisturbed one comes to. Names of trials: case, and the folder below the run's.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from tests.attack.areas import Needs, Try
from tests.attack.calls import call, fault
from tests.attack.kills import afresh, begun, settled, spread
from tests.attack.small_run import BY_NAME, World


@dataclass(frozen=True, slots=True)
class Rights:
    """Each folder that each case changes."""

    name: str = "rights"
    together: int = 8
    seconds: float = 300.0
    rights: str = "user"  # of root no right can be taken
    needs: Needs = Needs.CASES

    def trials(self, world: World) -> list[str]:
        found = []
        for case in world.cases:
            places = {str(Path("/", path).parent) for _, path, _ in world.operations(case)}
            places = {place for place in places if (world.before(case) / place[1:]).is_dir()}
            found += [("", f"{case.name}{place}") for place in sorted(places)]
        return spread(world, found)

    def opened(self, world: World, scratch: Path) -> Try:
        def tried(trial: str) -> str | None:
            name, _, place = trial.partition("/")
            case = BY_NAME[name]
            folder = begun(world, case, scratch)
            closed = folder / place
            mode = stat.S_IMODE(closed.stat().st_mode)
            closed.chmod(0o555)
            stopped = call(case.arguments, folder)
            if closed.exists():
                closed.chmod(mode)
            if wrong := fault(stopped):
                return f"{place} is read-only: {wrong}"
            return settled(world, case, folder, stopped)

        return afresh(scratch, tried)
