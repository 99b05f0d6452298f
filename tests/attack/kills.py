"""`kill -9` at every operation on files of every stage; a disk that is full from an operation on.

A trial begins with the folder as it is before a call. The call is stopped at the operation and is made again. Then the
folder equals that of an undisturbed call: nothing lost, nothing different, nothing left over, no file of the user's
touched. Where a call replaces, a reader that comes between both finds the old output, the new one, or an error. Names
of trials: case, number of the operation, and `torn` where a write is cut in half.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rla.errors import UserError
from rla.models.checkpoint import open_checkpoint
from rla.store.manifest import MANIFEST
from rla.store.reading import read_manifest, read_table
from tests.attack.areas import Needs, Try, dice
from tests.attack.calls import Ended, Point, call, fault
from tests.attack.preparing import Mode
from tests.attack.small_run import BY_NAME, Case, World, difference, digests

CHECKPOINT = "checkpoint.json"
WRITES = ("write", "copy", "map", "truncate")  # the others change names and come first
SPACE = ("open", "mkdir", "link", "symlink", *WRITES)


def spread(world: World, trials: Iterable[tuple[str, str]]) -> list[str]:
    """The names of (kind, name), each case and kind in its turn: a beginning covers all of them evenly."""
    apart: dict[tuple[str, str], list[str]] = {}
    for kind, name in trials:
        apart.setdefault((kind, name.partition("/")[0]), []).append(name)
    turns = []
    for (kind, case), names in apart.items():
        lots = dice(world, f"order of {case}, {kind}")
        lots.shuffle(names)
        turns += [(turn, kind, lots.random(), name) for turn, name in enumerate(names)]
    return [name for *_, name in sorted(turns)]


def begun(world: World, case: Case, scratch: Path) -> Path:
    """A copy of the folder as it is before the call."""
    folder = scratch / "here"
    shutil.copytree(world.before(case), folder)
    return folder


def mixture(world: World, case: Case, folder: Path) -> str | None:
    """A shard or checkpoint of a stopped call that a reader takes, and that is neither the old one nor the new one."""
    before, after, found = digests(world.before(case)), world.after(case), digests(folder)
    for record in [*folder.rglob(MANIFEST), *folder.rglob(CHECKPOINT)]:
        place = str(record.parent.relative_to(folder))
        if "/." in place:  # aside: readers never look there
            continue
        try:
            read = read_whole(record)
        except UserError:
            continue
        names = [f"{place}/{name}" for name in read]
        if not any(
            all(name in found and found[name] == known.get(name) for name in names) for known in (before, after)
        ):
            return f"read as whole, but neither the old one nor the new one: {place}"
    return None


def read_whole(record: Path) -> list[str]:
    """Names of all files that belong to what has this record. UserError where a reader refuses it."""
    folder = record.parent
    if record.name == MANIFEST:
        manifest = read_manifest(folder)
        read_table(folder, manifest["kind"])
        return [MANIFEST, *(part["name"] for part in manifest["parts"])]
    open_checkpoint(folder)
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def settled(world: World, case: Case, folder: Path, stopped: Ended) -> str | None:
    """Make the call again; what is wrong with where it comes to."""
    again = call(case.arguments, folder)
    if again.code != 0 or fault(again):
        return f"called again: {fault(again) or again.said.strip().splitlines()[-1][:200]}"
    if case.then and (wrong := fault(call(case.then, folder))):
        return f"then {case.then[0]}: {wrong}"
    found = difference(world.after(case), digests(folder))
    return found and f"{found} (after {stopped.code})"


@dataclass(frozen=True, slots=True)
class Kills:
    """Every operation once, and every write of more than a byte torn once."""

    name: str = "kill -9"
    together: int = 8
    seconds: float = 300.0
    rights: str | None = None
    needs: Needs = Needs.CASES

    def trials(self, world: World) -> list[str]:
        found = []
        for case in world.cases:
            for number, (operation, _, size) in enumerate(world.operations(case), start=1):
                found.append(("2 writes" if operation in WRITES else "1 names", f"{case.name}/{number}"))
                if size > 1:
                    found.append(("3 torn", f"{case.name}/{number}/torn"))
        return spread(world, found)

    def opened(self, world: World, scratch: Path) -> Try:
        def tried(trial: str) -> str | None:
            name, number, *torn = trial.split("/")
            case, mode = BY_NAME[name], Mode.TORN if torn else Mode.KILL
            folder = begun(world, case, scratch)
            stopped = call(case.arguments, folder, point=Point(number=int(number), mode=mode))
            if not stopped.killed and (stopped.code or fault(stopped)):
                return f"not killed, but {fault(stopped)}"
            if name.endswith("-again") and (wrong := mixture(world, case, folder)):
                return wrong
            return settled(world, case, folder, stopped)

        return afresh(scratch, tried)


@dataclass(frozen=True, slots=True)
class SecondKills:
    """Two kills in a row: the second falls into the call that goes on after the first."""

    count: int
    name: str = "kill -9 twice"
    together: int = 8
    seconds: float = 300.0
    rights: str | None = None
    needs: Needs = Needs.CASES

    def trials(self, world: World) -> list[str]:
        lots = dice(world, "twice")
        found = []
        for number in range(self.count):
            case = world.cases[number % len(world.cases)]
            most = max(1, len(world.operations(case)))
            found.append(("", f"{case.name}/{lots.randint(1, most)}/{lots.randint(1, most)}/{number}"))
        return spread(world, found)

    def opened(self, world: World, scratch: Path) -> Try:
        def tried(trial: str) -> str | None:
            name, first, second, _ = trial.split("/")
            case = BY_NAME[name]
            folder = begun(world, case, scratch)
            for number in (first, second):
                stopped = call(case.arguments, folder, point=Point(number=int(number)))
                if not stopped.killed and (stopped.code or fault(stopped)):
                    return f"not killed at {number}, but {fault(stopped)}"
            return settled(world, case, folder, stopped)

        return afresh(scratch, tried)


@dataclass(frozen=True, slots=True)
class FullDisks:
    """From one operation on the disk is full: one error in one line; with space again the call goes on."""

    name: str = "full disk"
    together: int = 8
    seconds: float = 300.0
    rights: str | None = None
    needs: Needs = Needs.CASES

    def trials(self, world: World) -> list[str]:
        found = []
        for case in world.cases:
            seen = set()
            for number, (operation, path, _) in enumerate(world.operations(case), start=1):
                if operation in SPACE:
                    new = (operation, path) not in seen
                    seen.add((operation, path))
                    found.append(("1 first" if new else "2 more", f"{case.name}/{number}"))
        return spread(world, found)

    def opened(self, world: World, scratch: Path) -> Try:
        def tried(trial: str) -> str | None:
            name, number = trial.split("/")
            case = BY_NAME[name]
            folder = begun(world, case, scratch)
            stopped = call(case.arguments, folder, point=Point(number=int(number), mode=Mode.FULL))
            if wrong := fault(stopped):
                return f"with a full disk: {wrong}"
            return settled(world, case, folder, stopped)

        return afresh(scratch, tried)


def afresh(scratch: Path, tried: Try) -> Try:
    """`tried`, in a folder that is empty before each trial."""

    def one(trial: str) -> str | None:
        shutil.rmtree(scratch / "here", ignore_errors=True)
        for path in scratch.glob("said-*"):
            path.unlink()
        return tried(trial)

    return one
