"""Removing the weights of old checkpoints: `rla prune`, and every stage that may have finished an iteration.

    iteration 0                                the start of the run, and the base of adapters: stays whole
    after the last finished iteration - keep   stays whole: the run goes on from there
    every n-th (`checkpoints.every`)           stays whole
    every n-th (`checkpoints.export_every`)    `model/` and `adapter/` stay
    an evaluation is planned and not made      the same, until it is
    all others                                 `state/`, `model/` and `adapter/` go

An iteration is finished once all of its artifacts are made from what is there now (`rla.pipeline.finished`): then
nothing that `dvc repro` calls reads the checkpoints before it, unless parameters change, and in that case the stage
that would read one names the command which makes it again (`rla.store.removing`). Record, metrics and `pruned.json`
stay. The marker is written first, so a removal that is killed leaves a part that nobody reads and that the next removal
ends.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rla.config import Config
from rla.config.load import read_yaml
from rla.config.sections import CheckpointsConfig
from rla.errors import UserError
from rla.pipeline.finished import RECORD, finished_iterations, policy_evaluated
from rla.pipeline.plan import evaluations_of
from rla.store.atomic import write_json
from rla.store.layout import artifact
from rla.store.removing import PARTS, PRUNED, STATE, pruned_parts

MODELS = ("policy", "rm")
PLAN = Path("iterations.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What goes of one checkpoint. `files`: those that are still there; `freed`: the bytes that the disk gets back."""

    checkpoint: Path
    parts: tuple[str, ...]
    files: tuple[Path, ...]
    freed: int = 0

    @property
    def shown(self) -> str:
        """The parts that have files, in words."""
        there = {path.relative_to(self.checkpoint).parts[0] for path in self.files}
        return ", ".join(part for part in self.parts if part in there)


def unneeded_parts(iteration: int, config: CheckpointsConfig, *, finished: int, awaited: bool) -> tuple[str, ...]:
    """The parts of an iteration's checkpoints that may go. `awaited`: an evaluation is still to come."""
    if not config.keep or not 0 < iteration <= finished - config.keep:
        return ()
    if config.every and iteration % config.every == 0:
        return ()
    if awaited or (config.export_every and iteration % config.export_every == 0):
        return (STATE,)
    return PARTS


def removals(
    run: Path, config: CheckpointsConfig, *, finished: int, evaluations: Collection[int] = ()
) -> list[Removal]:
    """What may go of a run whose first `finished` iterations are finished, oldest first.

    `evaluations`: the iterations that the plan wants evaluated.
    """
    found = []
    for iteration in range(1, finished + 1):
        awaited = iteration in evaluations and not policy_evaluated(run, iteration)
        parts = unneeded_parts(iteration, config, finished=finished, awaited=awaited)
        for model in MODELS if parts else ():
            checkpoint = artifact(run, model, iteration)
            files = part_files(checkpoint, parts)
            if files and (checkpoint / RECORD).is_file():
                found.append(Removal(checkpoint=checkpoint, parts=parts, files=files))
    freed = freed_bytes(one.files for one in found)
    return [
        Removal(checkpoint=one.checkpoint, parts=one.parts, files=one.files, freed=size)
        for one, size in zip(found, freed, strict=True)
    ]


def freed_bytes(groups: Iterable[Iterable[Path]]) -> list[int]:
    """The bytes that the disk gets back from each group, if they are removed one after the other.

    A file with several hard links gives its space back with the last of them, or not at all.
    """
    seen: Counter[tuple[int, int]] = Counter()
    freed = []
    for group in groups:
        size = 0
        for path in group:
            found = path.lstat()
            seen[found.st_dev, found.st_ino] += 1
            size += found.st_size if seen[found.st_dev, found.st_ino] == found.st_nlink else 0
        freed.append(size)
    return freed


def part_files(checkpoint: Path, parts: Sequence[str]) -> tuple[Path, ...]:
    return tuple(
        path
        for part in parts
        for path in sorted((checkpoint / part).rglob("*"))
        if path.is_symlink() or not path.is_dir()
    )


def prune_checkpoint(removal: Removal) -> None:
    """Mark the parts as pruned, then remove their files. Raises UserError where the system refuses."""
    checkpoint = removal.checkpoint
    gone = pruned_parts(checkpoint).union(removal.parts)
    write_json(checkpoint / PRUNED, {"parts": [part for part in PARTS if part in gone]})
    for path in removal.files:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(
                f"{path}: cannot be removed ({error.strerror or error}); mend that and call `rla prune` again"
            ) from None
    remove_empty_parts(checkpoint)


def remove_empty_parts(checkpoint: Path) -> None:
    """Of the pruned parts the folders without a file, which a removal that was killed has left."""
    for part in pruned_parts(checkpoint):
        if not any(path.is_file() for path in (checkpoint / part).rglob("*")):
            shutil.rmtree(checkpoint / part, ignore_errors=True)


def prune_run(run: Path, config: Config, *, plan: Path = PLAN) -> list[Removal]:
    """Remove all that `removals` finds; what went."""
    if not config.checkpoints.keep:
        return []
    finished, _ = finished_iterations(run)
    found = removals(run, config.checkpoints, finished=finished, evaluations=planned_evaluations(plan, run))
    for one in found:
        prune_checkpoint(one)
    for iteration in range(1, finished + 1):
        for model in MODELS:
            remove_empty_parts(artifact(run, model, iteration))
    return found


def planned_evaluations(plan: Path, run: Path) -> set[int]:
    """The evaluations that the plan of this run wants; none where the file is of another run, or is not there."""
    if not plan.is_file():
        return set()
    content = read_yaml(plan, remedy="call `rla plan`")
    if not isinstance(content, dict) or Path(str(content.get("run"))).resolve() != run.resolve():
        return set()
    return set(evaluations_of(content))
