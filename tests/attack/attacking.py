"""All areas, tried within a time, with progress on the disk."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.attack.areas import Area, Needs
from tests.attack.crew import Outcome, Queues, outcomes
from tests.attack.damage import Artifacts, Unfinished
from tests.attack.growing import grow_late_cases
from tests.attack.hostile_params import Params
from tests.attack.hostile_rows import Rows
from tests.attack.hostile_texts import Edits, Replies
from tests.attack.kills import FullDisks, Kills, SecondKills
from tests.attack.pairs import Pairs
from tests.attack.preparing import TOP, code_digest, imported, quickly_imported
from tests.attack.progress import Progress, show
from tests.attack.rights import Rights
from tests.attack.small_run import BY_NAME, CASES, FRESH, World, grow

QUICK = FRESH[:2]  # the calls that need no torch
EVERY = 60.0  # seconds between lines that say how far it is
AGAIN = 180.0  # seconds beyond its time in which a call tries once more what has failed

KILLS_SHARE = 4.0  # of the time, where every other area has 1: kills take longest
# Of the hostile inputs, where all packages are installed.
SHARES: dict[Any, float] = {Params: 0.3, Edits: 0.1, Replies: 0.1, Rows: 0.1, Artifacts: 0.1, Unfinished: 0.03}


def areas_of_packages() -> dict[Any, float]:
    """What the tests of installed packages add to `SHARES`: AREAS of `<name>_tests.attack`."""
    found: dict[Any, float] = {}
    for folder in sorted(TOP.glob("packages/*/tests/*_tests/attack")):
        if importlib.util.find_spec(folder.parts[-4].replace("-", "_")):
            found |= import_module(f"{folder.parent.name}.attack").AREAS
    return found


def all_areas(inputs: int) -> list[Area]:
    """Every area; the hostile inputs among them are `inputs` together."""
    hostile = [area(count=round(share * inputs)) for area, share in (SHARES | areas_of_packages()).items()]
    return [Kills(), SecondKills(count=300), FullDisks(), Rights(), Pairs(), *hostile]


def attack(asked: argparse.Namespace, folder: Path, *, until: float, console: Console) -> int:
    """What the command line asks for; the exit code."""
    names = [asked.only.split("/")[1]] if asked.only else asked.case or list(BY_NAME)
    world = World(folder, asked.seed, tuple(case for name, case in BY_NAME.items() if name in names) or CASES)
    areas = chosen(all_areas(asked.inputs), asked)
    prepare(world, areas, jobs=asked.jobs)
    if asked.only:
        return repeat(asked.only.partition("/")[2], areas[0], world, console)
    progress = Progress(folder / f"progress-{code_digest('tests/attack')}.jsonl", seed=asked.seed)
    if asked.again:
        progress.forget(progress.failed([area.name for area in areas]))
    queues = Queues(world, areas, progress.done, most=asked.most, shares={Kills().name: KILLS_SHARE})
    said = time.monotonic()
    try:
        for outcome in outcomes(queues, jobs=asked.jobs, until=until):
            progress.add(outcome)
            if time.monotonic() - said > EVERY:
                said = time.monotonic()
                failed = len(progress.failed(queues.totals))
                console.print(f"{len(progress.found)} of {sum(queues.totals.values())} tried, {failed} failed")
        for outcome in tried_again(world, areas, progress.failed(queues.totals)):
            progress.add(outcome)
    except KeyboardInterrupt:
        console.print("interrupted: the same command goes on")
    show(progress, queues, console)
    return int(bool(progress.failed(queues.totals)))


def tried_again(world: World, areas: Sequence[Area], failed: Sequence[Outcome]) -> Iterator[Outcome]:
    """What has failed once, while nothing else is tried: a busy machine makes trials fail, too."""
    once = {(outcome.area, outcome.trial): outcome.why for outcome in failed if outcome.first is None}
    if not once:
        return
    queues = Queues(world, areas, lambda area, trial: (area, trial) not in once)
    for outcome in outcomes(queues, jobs=1, until=time.monotonic() + AGAIN):
        yield replace(outcome, first=once[outcome.area, outcome.trial])


def chosen(areas: list[Area], asked: argparse.Namespace) -> list[Area]:
    """Those that the command line names. Raises SystemExit for a name that there is not."""
    names = [asked.only.partition("/")[0]] if asked.only else asked.area or [area.name for area in areas]
    if unknown := set(names) - {area.name for area in areas}:
        raise SystemExit(f"error: no area {', '.join(unknown)}; there are {', '.join(area.name for area in areas)}")
    return [area for area in areas if area.name in names]


def prepare(world: World, areas: list[Area], *, jobs: int) -> None:
    """Import what the trials import, and make what they begin from: no more than they need."""
    needs = max(area.needs.value for area in areas)
    if needs == Needs.NOTHING.value:
        return
    if needs == Needs.CASES.value and set(world.cases) <= set(QUICK):
        quickly_imported()
        grow(world, QUICK)
        return
    imported()
    grow(world)
    if needs == Needs.CASES.value:
        grow_late_cases(world, jobs=jobs)


def repeat(trial: str, area: Area, world: World, console: Console) -> int:
    """One trial by itself; the exit code."""
    if trial not in area.trials(world):
        raise SystemExit(f"error: {area.name} has no trial {trial}; is it one of other code, or of another seed?")
    queues = Queues(world, [area], lambda _, other: other != trial)
    (outcome,) = outcomes(queues, jobs=1, until=time.monotonic() + area.seconds + 60)
    said = f"{area.name}/{trial} as {outcome.user}: {outcome.why or 'held'}"
    console.print(said, markup=False, highlight=False, soft_wrap=True)
    return int(outcome.why is not None)
