"""A run folder of records alone: manifests and checkpoints that name their inputs, and weights of a few bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rla import __version__
from rla.pipeline.finished import artifact_digest
from rla.store.layout import artifact
from rla.store.manifest import MANIFEST

STATE_BYTES, MODEL_BYTES = 120, 20
BOTH = ("trajectories", "scores", "verdicts")
ARTIFACTS = {  # of an iteration, with their inputs
    "trajectories": ("previous_policy",),
    "scores": ("trajectories", "previous_rm"),
    "verdicts": ("trajectories",),
    "policy_rewards": BOTH,
    "rm_rewards": BOTH,
    "policy": ("previous_policy", "trajectories", "policy_rewards"),
    "rm": ("previous_rm", "scores", "rm_rewards"),
    "candidates": ("trajectories", "scores"),
}
CHECKPOINTS = ("policy", "rm", "first_policy", "first_rm")


def record(run: Path, name: str, iteration: int, *, salt: str = "") -> Path:
    """Write the artifact, made from its inputs as they are now. `salt`: of another content."""
    folder = artifact(run, name, iteration)
    sources = ARTIFACTS.get(name, ())
    inputs = {str(number): artifact_digest(run, source, iteration) for number, source in enumerate(sources)}
    origin: dict[str, Any] = {"config_digest": f"{name}/{iteration}/{salt}", "input_digests": inputs, "seed": 0}
    folder.mkdir(parents=True, exist_ok=True)
    if name not in CHECKPOINTS:
        (folder / MANIFEST).write_text(json.dumps(origin))
        return folder
    for part, size in (("state", STATE_BYTES), ("model", MODEL_BYTES)):
        (folder / part).mkdir(exist_ok=True)
        (folder / part / "weights.safetensors").write_bytes(bytes(size))
    (folder / "checkpoint.json").write_text(
        json.dumps({"rla": __version__, "updates": 1, "digest": salt, "origin": origin})
    )
    (folder / "metrics.json").write_text("{}")
    return folder


def finished_run(run: Path, iterations: int) -> Path:
    """Iteration 0 and as many finished ones."""
    for name in ("first_policy", "first_rm"):
        record(run, name, 0)
    for iteration in range(1, iterations + 1):
        for name in ARTIFACTS:
            record(run, name, iteration)
    return run


def evaluate(run: Path, iteration: int) -> None:
    """Write an evaluation of the policy as it is now."""
    folder = artifact(run, "eval_trajectories", iteration)
    folder.mkdir(parents=True)
    inputs = {"1": artifact_digest(run, "policy", iteration)}
    (folder / MANIFEST).write_text(json.dumps({"input_digests": inputs}))
    artifact(run, "eval_metrics", iteration).write_text("{}")


def parts(run: Path, model: str = "policy") -> dict[int, list[str]]:
    """iteration -> the parts of its checkpoint that have files."""
    return {
        int(folder.parent.name): sorted(part for part in ("state", "model") if any((folder / part).glob("*")))
        for folder in run.glob(f"[0-9]*/{model}")
    }
