"""A cell of `rla`: `python -m study_tests.bench.peer.ours`, the stages of the loop one after another in one process.

So the libraries are imported once, as TRL's trainer imports them once, and as `rla run` does.
A cell that was killed goes on with its first iteration that has no line, which it begins anew: half of one would be
too short.
"""

from __future__ import annotations

import shutil
from importlib import import_module

from rla_study.ablation.folders import share_artifacts

from rla.cli.app import run
from rla.pipeline.run import PRELOADED
from rla.report.tables import LOOP
from rla.store.frames import read_episodes
from rla.store.layout import artifact
from study_tests.bench.peer.calling import called_cell
from study_tests.bench.peer.meter import Meter
from study_tests.bench.peer.places import Places, rows_of
from study_tests.bench.peer.plan import Cell

SHARED = ("train_tasks", "test_tasks", "first_policy", "first_rm")


def train(places: Places, cell: Cell) -> None:
    """All iterations that have no line yet."""
    import torch

    for name in PRELOADED:  # what `rla run` imports once for all stages
        import_module(name)
    import_module("stages.compute_rewards")  # which that leaves out, because polars starts threads
    torch.set_num_threads(1)
    folder = places.cell(cell)
    target = folder / "run"
    share_artifacts(places.start, target, SHARED, of_split=())
    meter = Meter(folder / "rows.jsonl")
    options = places.options(target, cell, seed=cell.seed)
    first = len(rows_of(folder)) + 1
    shutil.rmtree(target / str(first), ignore_errors=True)
    for iteration in range(first, cell.iterations + 1):
        for stage in LOOP:
            with meter.part(stage):
                status = run([stage, *options, "--iteration", str(iteration)])
            if status:
                raise SystemExit(f"{cell.name}: {stage} of iteration {iteration} ended with {status}")
        episodes, _ = read_episodes(artifact(target, "trajectories", iteration))
        won = (episodes["outcome"] > 0).mean()
        meter.record(iteration, episodes=len(episodes), train_success=float(won))


if __name__ == "__main__":
    train(*called_cell())
