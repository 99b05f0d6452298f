"""Bit flips, cuts and foreign parts over every artifact: what is read is refused in one line, or equals what was there.

*Artifacts* damages one file of the complete run and reads it. *Unfinished* damages the parts of a shard whose stage was
killed before its manifest, then calls the stage again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from rla.errors import UserError
from rla.store.manifest import MANIFEST, STARTED
from rla.store.reading import read_rows
from tests.attack.areas import Needs, Numbered, Try, dice
from tests.attack.calls import Point, call, fault
from tests.attack.hostile import cut
from tests.attack.inputs import called, own_copy, within_memory
from tests.attack.kills import begun
from tests.attack.small_run import BY_NAME, SHARDS, World, difference, digests

Read = Callable[[], Any]
TRAINED = {"train-policy": "r/1/policy", "train-rm": "r/1/rm"}  # whose checkpoint of iteration 1 goes on


@dataclass(frozen=True, slots=True)
class Artifacts(Numbered):
    """Every file that a stage reads, damaged by lot."""

    name: str = "damage"
    seconds: float = 120.0
    needs: Needs = Needs.RUN

    def opened(self, world: World, scratch: Path) -> Try:
        folder = own_copy(world, scratch)
        within_memory()
        reads = {**shard_files(folder), **model_files(folder), **shown_files(folder)}
        kinds: dict[str, list[str]] = {}
        for name in sorted(reads):
            kinds.setdefault(kind_of(name), []).append(name)
        sound: dict[str, Any] = {}

        def tried(trial: str) -> str | None:
            lots = dice(world, f"{self.name}/{trial}")
            name = lots.choice(kinds[lots.choice(sorted(kinds))])
            what, read = reads[name]
            if what not in sound:
                sound[what] = read()
            path, before = folder / name, (folder / name).read_bytes()
            after = cut(before, lots)
            path.write_bytes(after)
            try:
                found = read()
            except UserError as error:
                return None if "\n" not in str(error) else f"{kind_of(name)}: its error has several lines"
            finally:
                path.write_bytes(before)
            if isinstance(found, str) and found.startswith(BROKEN):
                return f"{kind_of(name)}: {found.removeprefix(BROKEN)}"
            if found != sound[what]:
                return f"{kind_of(name)}: read as something else ({len(before)} bytes, then {len(after)})"
            return None

        return tried


BROKEN = "broken: "


def kind_of(name: str) -> str:
    """What sort of file it is: `trajectories/part`, `policy/state/moments.safetensors`."""
    path = Path(name)
    if path.name.startswith("part-"):
        return f"{path.parent.name}/part"
    inside = [part for part in path.parts[1:] if not part.isdigit()]
    return "/".join(inside).replace("init/", "").replace("rm/", "policy/")


def shard_files(folder: Path) -> dict[str, tuple[str, Read]]:
    """Parts and manifests, read as rows."""
    found: dict[str, tuple[str, Read]] = {}
    for shard, kind in SHARDS.items():
        for path in (folder / "r" / shard).iterdir():
            if path.name == MANIFEST or path.name.startswith("part-"):
                found[str(path.relative_to(folder))] = (shard, partial(rows, folder / "r" / shard, kind))
    return found


def rows(folder: Path, kind: str) -> str:
    """As text: NaN equals itself there."""
    return repr(read_rows(folder, kind))


def model_files(folder: Path) -> dict[str, tuple[str, Read]]:
    """Every file of the checkpoints that training goes on from, read by the training that follows."""
    found: dict[str, tuple[str, Read]] = {}
    for stage, place in TRAINED.items():
        for path in (folder / place).rglob("*"):
            if path.is_file() and path.name not in ("metrics.json", "metrics.jsonl"):
                found[str(path.relative_to(folder))] = (stage, partial(trained, folder, stage))
    return found


def trained(folder: Path, stage: str) -> Any:
    """Digests of the checkpoint of iteration 2; raises UserError where the stage refuses."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    ended = called([stage, "--run", "r", "--iteration", "2", "--out", "out"])
    if wrong := fault(ended):
        return f"{BROKEN}{wrong}"
    if ended.code:
        raise UserError("refused")
    made = digests(folder)
    return {name: digest for name, digest in made.items() if name.startswith("out/") and "checkpoint.json" not in name}


def shown_files(folder: Path) -> dict[str, tuple[str, Read]]:
    """Numbers for people, read by the report, which shows what they say: no traceback is all that can be asked."""
    found: dict[str, tuple[str, Read]] = {}
    places = [folder / "r/1", folder / "r/2", folder / "r/eval/0", folder / "r/timings", *(folder / "r/1").glob("*/")]
    for path in (path for place in places for path in place.glob("*.json")):
        name = str(path.relative_to(folder))
        if path.name not in (MANIFEST, "checkpoint.json"):
            found[name] = ("report", reported)
    return found


def reported() -> str:
    wrong = fault(called(["report", "--run", "r", "--out", "shown"]))
    return f"{BROKEN}{wrong}" if wrong else "shown"


@dataclass(frozen=True, slots=True)
class Unfinished(Numbered):
    """Parts, `_started.parquet` and manifests of slices, damaged or foreign, in a shard that is not finished."""

    name: str = "unfinished"
    together: int = 10
    seconds: float = 200.0
    needs: Needs = Needs.RUN

    def opened(self, world: World, scratch: Path) -> Try:
        cases = {
            name: stopped(world, name, scratch / name) for name in ("rollout-2", "score-steps-2", "evaluate-slice-1")
        }

        def tried(trial: str) -> str | None:
            lots = dice(world, f"{self.name}/{trial}")
            name = lots.choice(sorted(cases))
            shutil.rmtree(scratch / "here", ignore_errors=True)
            shutil.copytree(cases[name], scratch / "here")
            damaged = damage_one(scratch / "here", BY_NAME[name].arguments, lots)
            overwrite = lots.random() < 0.5
            ended = call([*BY_NAME[name].arguments, *["--overwrite"] * overwrite], scratch / "here")
            if wrong := fault(ended):
                return f"{damaged}: {wrong}"
            if ended.code == 2:
                blocked = overwrite and "slice" not in name
                return (
                    f"{damaged}: refused, --overwrite included: {ended.said.splitlines()[-1][:120]}"
                    if blocked
                    else None
                )
            found = difference(world.after(BY_NAME[name]), digests(scratch / "here"))
            return (found and not same_rows(world, scratch / "here") and f"{damaged}: {found}") or None

        return tried


def stopped(world: World, name: str, scratch: Path) -> Path:
    """The folder of a call that was killed when its parts were there and its manifest was not."""
    case = BY_NAME[name]
    numbers = [
        number
        for number, (operation, path, _) in enumerate(world.operations(case), start=1)
        if operation == "rename" and Path(path).name.startswith("_manifest")
    ]
    scratch.mkdir()
    folder = begun(world, case, scratch)
    ended = call(case.arguments, folder, point=Point(number=numbers[0]))
    assert ended.killed, ended.said
    return folder


def same_rows(world: World, folder: Path) -> bool:
    """Whether every shard that is there holds what it should: bytes that nobody reads may differ."""
    try:
        return all(
            rows(folder / "r" / shard, kind) == rows(world.complete / "r" / shard, kind)
            for shard, kind in {**SHARDS, "eval/2/trajectories": "trajectories"}.items()
            if (folder / "r" / shard / MANIFEST).exists()
        )
    except UserError:
        return False


def damage_one(folder: Path, arguments: tuple[str, ...], lots: Random) -> str:
    """Harm one file of the shard that has parts and no manifest; says what was done."""
    shard = next(path.parent for path in sorted(folder.rglob(STARTED)) if any(path.parent.glob("part-*")))
    parts = sorted(shard.glob("part-*.parquet"))
    kind = lots.randrange(6)
    if kind == 0:
        first, second = lots.sample(parts, 2) if len(parts) > 1 else (parts[0], parts[0])
        shutil.copy(first, second)
        return "a part copied over another"
    if kind == 1:
        shutil.copy(lots.choice(parts), shard / f"part-{lots.choice((17, 99)):05d}.parquet")
        return "a stray part"
    path = lots.choice(sorted(path for path in shard.iterdir() if path.is_file()))
    path.write_bytes(cut(path.read_bytes(), lots))
    return f"a damaged {'part' if path in parts else path.name}"
