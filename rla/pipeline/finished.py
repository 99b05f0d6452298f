"""Which iterations of a run are finished, and which checkpoints may be removed.

An iteration is finished if its models and candidates exist and were made from their inputs as they are now: every
record has the digests of its inputs. This also detects a run whose parameters have changed and that DVC is working
through again.

Pruning removes the weights of old checkpoints after every stage that may have finished an iteration:

    iteration 0                                the start of the run, which may be the base of adapters: stays whole
    after the last finished iteration - keep   stays whole: the run goes on from there
    every n-th (`checkpoints.export_every`)    `model/` and `adapter/` stay
    an evaluation is planned and not made      the same, until it is made
    all others                                 `state/`, `model/` and `adapter/` are removed

`dvc repro` does not read the checkpoints before a finished iteration unless parameters change. In that case the stage
that needs one names the command that makes it again (`refuse_pruned`). Record, metrics and `pruned.json` stay. The
marker is written first, so a removal that is killed leaves a part that nobody reads and that the next removal finishes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.config.load import read_yaml
from rla.config.sections import CheckpointsConfig
from rla.models.checkpoint import PARTS, PRUNED, STATE, pruned_parts
from rla.pipeline.plan import PLAN, evaluations_of
from rla.store.atomic import remove_folder, write_json
from rla.store.layout import artifact, further_splits
from rla.store.manifest import MANIFEST, STARTED, digest, is_complete, optional_json

RECORD = "checkpoint.json"
# Artifacts of an iteration with the inputs that they must have been made from. Any other change of the iteration
# changes its trajectories or its scores, and thus one of these.
MADE_FROM = {
    "policy": ("previous_policy", "trajectories"),
    "rm": ("previous_rm", "scores"),
    "candidates": ("trajectories", "scores"),
}


def finished_iterations(run: Path) -> tuple[int, str]:
    """The last iteration up to which all are finished, and the reason why the next one is not."""
    last = 0
    while not (reason := next(filter(None, (_unmade_reason(run, name, last + 1) for name in MADE_FROM)), "")):
        last += 1
    return last, reason


def _unmade_reason(run: Path, name: str, iteration: int) -> str:
    """The reason why an artifact of `MADE_FROM` has to be made, or made again; empty if it is up to date."""
    place = artifact(run, name, iteration)
    inputs = _recorded_inputs(place)
    if inputs is None:
        return f"{place} is not there yet"
    for source in MADE_FROM[name]:
        if artifact_digest(run, source, iteration) not in inputs:
            return f"{place} was not made from {_source_folder(run, source, iteration)} as it is now"
    return ""


def policy_evaluated(run: Path, iteration: int) -> bool:
    """Whether the present checkpoints of the iteration have been evaluated on every held-out split."""
    policy = artifact_digest(run, "policy", iteration)
    for root in (run, *further_splits(run).values()):
        inputs = _recorded_inputs(artifact(root, "eval_trajectories", iteration))
        if inputs is None or policy not in inputs or not artifact(root, "eval_metrics", iteration).exists():
            return False
    return True


def _recorded_inputs(folder: Path) -> set[str] | None:
    """The digests of the inputs of a complete shard or checkpoint; None if it is not complete."""
    origin = output_origin(folder, begun=False)
    return None if origin is None else set(origin["input_digests"].values())


def output_origin(folder: Path, *, begun: bool = True) -> dict[str, Any] | None:
    """The recorded origin of a shard or checkpoint. `begun`: also of an incomplete one."""
    for name in (MANIFEST, STARTED) if begun else (MANIFEST,):
        if (shard := optional_json(folder / name)) is not None:
            return shard
    return (optional_json(folder / RECORD) or {}).get("origin")


def artifact_digest(run: Path, name: str, iteration: int) -> str | None:
    """The digest of the artifact that its readers record; None if it is not complete."""
    folder = _source_folder(run, name, iteration)
    known = is_complete(folder) or any((folder / file).is_file() for file in (RECORD, "config.json"))
    return digest(folder) if known else None


def _source_folder(run: Path, name: str, iteration: int) -> Path:
    folder = artifact(run, name, iteration)
    if iteration == 1 and name.startswith("previous_") and not folder.exists():  # a run without a warm start
        return artifact(run, name.replace("previous", "init"), 0)
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The parts of a checkpoint to remove, and the bytes of disk space that this frees."""

    checkpoint: Path
    parts: tuple[str, ...]
    freed: int


def unneeded_parts(iteration: int, config: CheckpointsConfig, *, finished: int, awaited: bool) -> tuple[str, ...]:
    """The parts of an iteration's checkpoints that may be removed. `awaited`: an evaluation is still to come."""
    if not config.keep or not 0 < iteration <= finished - config.keep:
        return ()
    if awaited or (config.export_every and iteration % config.export_every == 0):
        return (STATE,)
    return PARTS


def prune_run(run: Path, config: Config, *, dry_run: bool = False) -> list[Removal]:
    """Remove the parts of checkpoints that are not needed any more, oldest first, unless it is a `dry_run`. Returns the
    removals. Raises UserError if the system refuses one.
    """
    if not config.checkpoints.keep:
        return []
    finished, _ = finished_iterations(run)
    planned, found = planned_evaluations(PLAN, run), list[Removal]()
    for iteration in range(1, finished + 1):
        awaited = iteration in planned and not policy_evaluated(run, iteration)
        parts = unneeded_parts(iteration, config.checkpoints, finished=finished, awaited=awaited)
        for checkpoint in (artifact(run, model, iteration) for model in ("policy", "rm")):
            there = tuple(part for part in parts if (checkpoint / part).exists())
            if there and (checkpoint / RECORD).is_file():
                found.append(Removal(checkpoint=checkpoint, parts=there, freed=_size(checkpoint, there)))
                if dry_run:
                    continue
                gone = pruned_parts(checkpoint).union(parts)  # marked before the first folder goes
                write_json(checkpoint / PRUNED, {"parts": [part for part in PARTS if part in gone]})
                for part in there:
                    remove_folder(checkpoint / part)
    return found


def _size(checkpoint: Path, parts: tuple[str, ...]) -> int:
    """The disk space of the parts. A file with several links (unchanged weights) counts in equal shares."""
    files = (path.lstat() for part in parts for path in (checkpoint / part).rglob("*") if not path.is_dir())
    return sum(file.st_size // file.st_nlink for file in files)


def planned_evaluations(plan: Path, run: Path) -> set[int]:
    """The evaluations in the plan of this run; none if the file is missing or belongs to another run."""
    if not plan.is_file():
        return set()
    content = read_yaml(plan, remedy="call `rla plan`")
    if not isinstance(content, dict) or Path(str(content.get("run"))).resolve() != run.resolve():
        return set()
    return set(evaluations_of(content))
