"""Engines and nodes that are killed in the middle of a stage: its shard is that of a plain call, byte by byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rla_ray.engines.cluster import engine_states, known_engines

from ray_tests.cluster.conftest import Nodes, Rla, on_ray
from tests.integration.pipelines import contents, until

DEADLINE = 300.0  # seconds, on a machine that is busy
FEW = ("--set", "rollout.concurrency=2")  # so that most is still to be asked when the first group is done
STAGES = {
    "rollout": ("--iteration", "1"),
    "score-steps": ("--iteration", "1"),
    "evaluate": ("--iteration", "0"),
}


def kill_an_engine(ray: Any) -> None:
    states = engine_states(ray, known_engines(ray)).values()
    state = max((state for state in states if state), key=lambda state: int(state["answered"]))
    os.kill(state["process"], signal.SIGKILL)


def interrupted(folder: Path, stage: str, nodes: Nodes, ray: Any, *, loss: str) -> Path:
    """The stage on three engines, one of which is lost while the stage writes its second group."""
    out, gates = folder / f"{stage}-{loss}", folder / f"gates-{stage}-{loss}"
    gates.mkdir()
    (gates / "1").touch()
    more = ("--metrics", f"{out.name}.json") if stage == "evaluate" else ()
    options = on_ray(nodes, "scripted", "own.replicas=3", "own.patience=120")
    words = [stage, "--run", "r", *STAGES[stage], "--out", out.name, *more, *FEW, *options]
    gated = [sys.executable, "-m", "tests.integration.gated_rollout", str(gates), *words]
    process = subprocess.Popen(
        gated,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[5])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: any(out.glob("part-*.parquet")) or process.poll() is not None, seconds=DEADLINE)
    assert process.poll() is None, process.stderr and process.stderr.read()
    assert len(list(out.glob("part-*.parquet"))) == 1
    if loss == "node":
        nodes.kill_one()
    else:
        kill_an_engine(ray)
    for number in range(2, 100):
        (gates / str(number)).touch()
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    return out


@pytest.mark.parametrize("loss", ["engine", "node"])
def test_a_loss_in_the_middle_of_each_stage_leaves_no_trace(
    rla: Rla, tmp_path: Path, nodes: Nodes, ray: Any, loss: str
) -> None:
    rla("make-tasks", "--run", "r")
    rla("init-model", "--run", "r")
    for stage, iteration in STAGES.items():
        rla(stage, "--run", "r", *iteration, *FEW)
    plain = {"rollout": "r/1/trajectories", "score-steps": "r/1/scores", "evaluate": "r/eval/0/trajectories"}
    for stage in STAGES:
        try:
            made = interrupted(tmp_path, stage, nodes, ray, loss=loss)
        finally:
            while len(nodes.others) < 2:
                nodes.add()
        assert contents(made) == contents(tmp_path / plain[stage])
