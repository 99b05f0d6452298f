"""Which iterations of a run are finished, which checkpoints may be removed, and how long its stages took.

An iteration is finished if all of its artifacts exist and were made from one another as they are now: every record has
the digests of its inputs. This also detects a run whose parameters have changed and that DVC is working through again.

Pruning removes the weights of old checkpoints after every stage that may have finished an iteration:

    iteration 0                                the start of the run, which may be the base of adapters: stays whole
    after the last finished iteration - keep   stays whole: the run goes on from there
    every n-th (`checkpoints.export_every`)    `model/` and `adapter/` stay
    an evaluation is planned and not made      the same, until it is made
    all others                                 `state/`, `model/` and `adapter/` are removed

`dvc repro` does not read the checkpoints before a finished iteration unless parameters change. In that case the stage
that needs one names the command that makes it again (`refuse_pruned`). Record, metrics and `pruned.json` stay. The
marker is written first, so a removal that is killed leaves a part that nobody reads and that the next removal finishes.

Times are in `<run>/timings/<iteration>-<stage>.json`.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.config.load import read_yaml
from rla.config.sections import CheckpointsConfig
from rla.errors import UserError
from rla.models.checkpoint import PARTS, PRUNED, STATE, pruned_parts
from rla.pipeline.plan import evaluations_of
from rla.store.atomic import write_json
from rla.store.layout import artifact, further_splits
from rla.store.manifest import MANIFEST, STARTED, digest, is_complete, optional_json, optional_record, read_regular

RECORD = "checkpoint.json"
BOTH = ("trajectories", "scores", "verdicts")
# artifact of an iteration -> artifacts that it must have been made from
MADE_FROM = {
    "trajectories": ("previous_policy",),
    "scores": ("trajectories", "previous_rm"),
    "verdicts": ("trajectories",),
    "policy_rewards": BOTH,
    "rm_rewards": BOTH,
    "policy": ("previous_policy", "trajectories", "policy_rewards"),
    "rm": ("previous_rm", "scores", "rm_rewards"),
    "candidates": ("trajectories", "scores"),
}
# In place of a checkpoint of iteration 0, if the run has no warm start.
BEGINNING = {"previous_policy": "init_policy", "previous_rm": "init_rm"}


def finished_iterations(run: Path) -> tuple[int, str]:
    """The last iteration up to which all are finished, and the reason why the next one is not."""
    last = 0
    while not (reason := next(filter(None, (_unmade_reason(run, name, last + 1) for name in MADE_FROM)), "")):
        last += 1
    return last, reason


def _unmade_reason(run: Path, name: str, iteration: int) -> str:
    """The reason why an artifact of `MADE_FROM` has to be made, or made again; empty if it is up to date."""
    place = artifact(run, name, iteration)
    inputs = recorded_inputs(place)
    if inputs is None:
        return f"{place} is not there yet"
    for source in MADE_FROM[name]:
        if source == "previous_rm":
            _, shard = optional_record(place, MANIFEST) or (None, {})
            if len(inputs) == 1 or "failed" in shard.get("counts", {}):
                continue  # judge.enabled: false, or a chat server has judged
        if artifact_digest(run, source, iteration) not in inputs:
            return f"{place} was not made from {_source_folder(run, source, iteration)} as it is now"
    return ""


def policy_evaluated(run: Path, iteration: int) -> bool:
    """Whether the present checkpoints of the iteration have been evaluated on every held-out split."""
    policy = artifact_digest(run, "policy", iteration)
    for root in (run, *further_splits(run).values()):
        inputs = recorded_inputs(artifact(root, "eval_trajectories", iteration))
        if inputs is None or policy not in inputs or not artifact(root, "eval_metrics", iteration).exists():
            return False
    return True


def recorded_inputs(folder: Path) -> set[str] | None:
    """The digests of the inputs of a complete shard or checkpoint; None if it is not complete."""
    origin = output_origin(folder, begun=False)
    return None if origin is None else set(origin["input_digests"].values())


def output_origin(folder: Path, *, begun: bool = True) -> dict[str, Any] | None:
    """The recorded origin of a shard or checkpoint. `begun`: also of an incomplete one."""
    for name in (MANIFEST, STARTED) if begun else (MANIFEST,):
        if shard := optional_record(folder, name):
            return shard[1]
    return (optional_json(folder / RECORD) or {}).get("origin")


def artifact_digest(run: Path, name: str, iteration: int) -> str | None:
    """The digest of the artifact that its readers record; None if it is not complete."""
    folder = _source_folder(run, name, iteration)
    known = is_complete(folder) or any((folder / file).is_file() for file in (RECORD, "config.json"))
    return digest(folder) if known else None


def _source_folder(run: Path, name: str, iteration: int) -> Path:
    folder = artifact(run, name, iteration)
    if iteration == 1 and name in BEGINNING and not folder.exists():
        return artifact(run, BEGINNING[name], 0)
    return folder


MODELS = ("policy", "rm")
PLAN = Path("iterations.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The parts of a checkpoint to remove. `files`: their remaining files. `freed`: bytes of disk space."""

    checkpoint: Path
    parts: tuple[str, ...]
    files: tuple[Path, ...]
    freed: int = 0

    @property
    def shown(self) -> str:
        """The parts that have files, as text."""
        there = {path.relative_to(self.checkpoint).parts[0] for path in self.files}
        return ", ".join(part for part in self.parts if part in there)


def unneeded_parts(iteration: int, config: CheckpointsConfig, *, finished: int, awaited: bool) -> tuple[str, ...]:
    """The parts of an iteration's checkpoints that may be removed. `awaited`: an evaluation is still to come."""
    if not config.keep or not 0 < iteration <= finished - config.keep:
        return ()
    if awaited or (config.export_every and iteration % config.export_every == 0):
        return (STATE,)
    return PARTS


def removals(
    run: Path, config: CheckpointsConfig, *, finished: int, evaluations: Collection[int] = ()
) -> list[Removal]:
    """The removals in a run with `finished` iterations, oldest first. `evaluations`: iterations in the plan."""
    found = []
    for iteration in range(1, finished + 1):
        awaited = iteration in evaluations and not policy_evaluated(run, iteration)
        parts = unneeded_parts(iteration, config, finished=finished, awaited=awaited)
        for model in MODELS if parts else ():
            checkpoint = artifact(run, model, iteration)
            files = tuple(
                path
                for part in parts
                for path in sorted((checkpoint / part).rglob("*"))
                if path.is_symlink() or not path.is_dir()
            )
            if files and (checkpoint / RECORD).is_file():
                found.append(Removal(checkpoint=checkpoint, parts=parts, files=files))
    freed = freed_bytes(one.files for one in found)
    return [replace(one, freed=size) for one, size in zip(found, freed, strict=True)]


def freed_bytes(groups: Iterable[Iterable[Path]]) -> list[int]:
    """The disk space that is freed by each group of files, if the groups are removed in order. A file with several hard
    links frees its space with the last of them.
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


def prune_checkpoint(removal: Removal) -> None:
    """Mark the parts as pruned, then remove their files. Raises UserError if the system refuses."""
    checkpoint = removal.checkpoint
    gone = pruned_parts(checkpoint).union(removal.parts)
    write_json(checkpoint / PRUNED, {"parts": [part for part in PARTS if part in gone]})
    for path in removal.files:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(
                f"{path}: cannot be removed ({error.strerror or error}); mend that and call the stage again"
            ) from None
    _remove_empty_parts(checkpoint)


def _remove_empty_parts(checkpoint: Path) -> None:
    """Remove the folders of pruned parts that have no file, which a killed removal may have left."""
    for part in pruned_parts(checkpoint):
        if not any(path.is_file() for path in (checkpoint / part).rglob("*")):
            shutil.rmtree(checkpoint / part, ignore_errors=True)


def prune_run(run: Path, config: Config, *, plan: Path = PLAN, dry_run: bool = False) -> list[Removal]:
    """Remove all that `removals` finds, unless it is a `dry_run`. Returns the removals."""
    if not config.checkpoints.keep:
        return []
    finished, _ = finished_iterations(run)
    found = removals(run, config.checkpoints, finished=finished, evaluations=planned_evaluations(plan, run))
    if dry_run:
        return found
    for one in found:
        prune_checkpoint(one)
    for iteration in range(1, finished + 1):
        for model in MODELS:
            _remove_empty_parts(artifact(run, model, iteration))
    return found


def planned_evaluations(plan: Path, run: Path) -> set[int]:
    """The evaluations in the plan of this run; none if the file is missing or belongs to another run."""
    if not plan.is_file():
        return set()
    content = read_yaml(plan, remedy="call `rla plan`")
    if not isinstance(content, dict) or Path(str(content.get("run"))).resolve() != run.resolve():
        return set()
    return set(evaluations_of(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedDevice:
    """A GPU that a call used, or a CPU if `gpu` is empty. `host`: of another machine. `spans`: times of use in seconds
    since the epoch, if it was not used during the whole call.
    """

    gpu: str
    model: str = ""
    host: str = ""
    spans: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall:
    """One call of one stage. `started`: seconds since the epoch. `made`: whether it made anything. `origin`: of its
    outputs. `host`, `devices`, `part`: machine and slice as in `rla.cli.calls`. `figures`: of the environment.
    """

    stage: str
    iteration: int
    started: float
    seconds: float
    made: bool
    origin: str | None
    host: str
    devices: tuple[TimedDevice, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    part: str = ""


def calls_of(file: Path) -> list[TimedCall]:
    """`current_calls` of a record; empty if it cannot be read."""
    try:
        return current_calls(json.loads(read_regular(file)))
    except (OSError, UserError, ValueError, KeyError, TypeError):
        return []


def current_calls(record: Any) -> list[TimedCall]:
    """The calls of a record whose outputs have the origin of the last call; empty for `report`, which would change with
    every call if it had its own time. Raises KeyError, TypeError or ValueError for anything but a record of times.
    """
    stage, iteration = str(record["stage"]), int(record["iteration"])
    calls = [
        TimedCall(
            stage=stage,
            iteration=iteration,
            started=datetime.fromisoformat(call["started"]).timestamp(),
            seconds=float(call["seconds"]),
            made=bool(call["made"]),
            origin=call["origin"],
            figures={str(name): float(value) for name, value in dict(call.get("figures", {})).items()},
            host=str(call["host"]),
            devices=tuple(
                TimedDevice(
                    gpu=str(device["gpu"]),
                    model=str(device["name"]),
                    host=str(device.get("host", "")),
                    spans=tuple((float(start), float(end)) for start, end in device.get("spans", ())),
                )
                for device in call["devices"]
            ),
            part=str(call.get("slice", "")),
        )
        for call in record["calls"]
    ]
    return [call for call in calls if call.origin in (None, calls[-1].origin) and stage != "report"]
