"""Run folders made by hand, with all that a comparison reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rla.store.manifest import write_run_config
from rla.store.shards import Origin, write_shard
from tests.unit.builders import trajectory

Won = Mapping[str, Sequence[int]]  # task -> outcome of each of its episodes, 1 or -1

LITTLE: Won = {"a": [1], "b": [-1], "c": [-1], "d": [-1]}
MUCH: Won = {"a": [1], "b": [1], "c": [1], "d": [-1]}
NOTHING: Won = {"a": [-1], "b": [-1], "c": [-1], "d": [-1]}


def params(weight: float = 1.0, seed: int = 0, **further: Any) -> dict[str, Any]:
    return {"seed": seed, "credit": {"step_weight": weight, "normalise": "task"}, **further}


def write_json_file(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def evaluated(root: Path, iteration: int, outcomes: Won, split: str = "test") -> None:
    """An evaluation below the root of a split: its trajectories and its metrics."""
    rows = [
        trajectory(f"{task}{number}", task_id=task, outcome=outcome).row()
        for task, found in outcomes.items()
        for number, outcome in enumerate(found)
    ]
    all_of_them = [outcome for found in outcomes.values() for outcome in found]
    success = sum(outcome == 1 for outcome in all_of_them) / len(all_of_them)
    folder = root / f"eval/{iteration}"
    write_shard(folder / "trajectories", "trajectories", rows, Origin(config="c", inputs={}, seed=0))
    bounds = {"success_low": success / 2, "success_high": (1 + success) / 2}
    write_json_file(folder / "metrics.json", {"split": split, "episodes": len(rows), "success": success, **bounds})


def made_run(
    folder: Path,
    outcomes: Mapping[int, Won],
    *,
    config: Mapping[str, Any] | None = None,
    metrics: Sequence[Mapping[str, Any]] = ({}, {}),
    seconds: float = 10.0,
) -> Path:
    """`metrics`: of iterations 1, 2, ...; every rollout takes `seconds`, the warm start 60."""
    for number, measured in enumerate(metrics, 1):
        write_json_file(folder / f"{number}/metrics.json", {"success": 0.5, **measured})
        timed(folder, number, "rollout", seconds)
    timed(folder, 1, "warm-start", 60.0)
    for iteration, won in outcomes.items():
        evaluated(folder, iteration, won)
    write_run_config(folder, params() if config is None else config)
    return folder


def timed(folder: Path, iteration: int, stage: str, seconds: float) -> None:
    call = {"started": "2026-01-01", "seconds": seconds, "made": True, "origin": None, "host": "one", "devices": []}
    record = {"stage": stage, "iteration": iteration, "calls": [call]}
    write_json_file(folder / f"timings/{iteration}-{stage}.json", record)
