"""How far a run is finished: the iterations whose artifacts are all there and made from one another as they are now.

Every record names the digests of its inputs, so one that names an input which has been made anew since is found, and
with it a run whose parameters have changed and that DVC is working through again from an early iteration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rla.store.digests import digest
from rla.store.layout import artifact, further_splits
from rla.store.record import MANIFEST, STARTED, is_complete, optional_json, optional_record

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
# Where a run without a warm start begins.
BEGINNING = {"previous_policy": "init_policy", "previous_rm": "init_rm"}


def finished_iterations(run: Path) -> tuple[int, str]:
    """The last iteration up to which all are finished, and why the next one is not."""
    last = 0
    while not (reason := next(filter(None, (unmade_reason(run, name, last + 1) for name in MADE_FROM)), "")):
        last += 1
    return last, reason


def unmade_reason(run: Path, name: str, iteration: int) -> str:
    """Why an artifact of `MADE_FROM` has to be made, or made again; empty where it is as it should be."""
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
            return f"{place} was not made from {source_folder(run, source, iteration)} as it is now"
    return ""


def policy_evaluated(run: Path, iteration: int) -> bool:
    """Whether the checkpoints of the iteration, as they are now, have been evaluated, on every held-out split."""
    policy = artifact_digest(run, "policy", iteration)
    for root in (run, *further_splits(run).values()):
        inputs = recorded_inputs(artifact(root, "eval_trajectories", iteration))
        if inputs is None or policy not in inputs or not artifact(root, "eval_metrics", iteration).exists():
            return False
    return True


def recorded_inputs(folder: Path) -> set[str] | None:
    """The digests of what a complete shard or checkpoint was made from; None where it is not complete."""
    origin = output_origin(folder, begun=False)
    return None if origin is None else set(origin["input_digests"].values())


def output_origin(folder: Path, *, begun: bool = True) -> dict[str, Any] | None:
    """What a shard or checkpoint was made from, as it says itself; `begun`: also one that is not complete."""
    for name in (MANIFEST, STARTED) if begun else (MANIFEST,):
        if shard := optional_record(folder, name):
            return shard[1]
    return (optional_json(folder / RECORD) or {}).get("origin")


def artifact_digest(run: Path, name: str, iteration: int) -> str | None:
    """The digest by which what reads the artifact names it; None where it is not complete."""
    folder = source_folder(run, name, iteration)
    known = is_complete(folder) or any((folder / file).is_file() for file in (RECORD, "config.json"))
    return digest(folder) if known else None


def source_folder(run: Path, name: str, iteration: int) -> Path:
    folder = artifact(run, name, iteration)
    if iteration == 1 and name in BEGINNING and not folder.exists():
        return artifact(run, BEGINNING[name], 0)
    return folder
