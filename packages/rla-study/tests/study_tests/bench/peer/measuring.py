"""Plays policies on held-out tasks: `python -m study_tests.bench.peer.measuring`, `rla evaluate` in one process.

The same evaluator for both sides, apart from the trainings, so that it counts in nobody's time or memory.
"""

from __future__ import annotations

import json
from pathlib import Path

from rla.cli.app import run
from rla.store.layout import artifact
from study_tests.bench.peer.calling import called
from study_tests.bench.peer.places import Places


def measure(places: Places, jobs: list[list[str]]) -> None:
    """Each job is a policy, a pool and the file of its metrics; the episodes lie beside that. What is there stays."""
    import torch

    torch.set_num_threads(1)
    for policy, pool, metrics in jobs:
        out = Path(metrics).with_suffix("") / "trajectories"
        options = [*places.options(places.start), "--iteration", "0", "--tasks", pool, "--policy", policy]
        if status := run(["evaluate", *options, "--out", str(out), "--metrics", metrics]):
            raise SystemExit(f"{metrics}: evaluate ended with {status}")


def start_job(places: Places) -> list[str]:
    """The start's policy on the report's tasks."""
    policy, pool = (artifact(places.start, name, 0) for name in ("first_policy", "test_tasks"))
    return [str(policy), str(pool), str(places.root / "eval" / "start.json")]


if __name__ == "__main__":
    root, text = called()
    call = json.loads(text)
    measure(Places(root=root, params=Path(call["params"]), sets=tuple(call["sets"])), call["jobs"])
