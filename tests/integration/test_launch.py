"""`launch.training`: an ordinary call trains on several processes and writes what one process writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from rla.config import load_config
from rla.launch import arguments_of, launcher
from rla.resources import resource
from stages import STAGES
from tests.integration.pipelines import PARAMS, environment

TRAIN = next(spec for spec in STAGES if spec.name == "train-policy")
GIVEN = {"params": None, "run": None, "iteration": 1, "seed": None, "env": None, "set_": None, "overwrite": False}
NO_PATHS = {f"path_{name}": None for name, _ in (*TRAIN.reads, *TRAIN.writes)}


def rla(*arguments: str, folder: Path, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rla", *arguments],
        cwd=folder,
        env=environment() | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_stage_is_launched_and_gives_what_one_process_gives(tmp_path: Path) -> None:
    # Judgements differ where nobody wins; so there is something to train on.
    (tmp_path / "params.yaml").write_text(PARAMS.replace("credit: {", "credit: {policy_low: -1.0, "))
    two = yaml.safe_load(resource("pipelines/accelerate/ddp.yaml").read_text()) | {"num_processes": 2}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(two | {"main_process_port": 0}))
    for stage in ("rollout", "score-steps", "validate-tasks", "compute-rewards"):
        rla(stage, "--run", "runs/t", folder=tmp_path)
    rla("train-policy", "--run", "runs/t", "--out", "alone", folder=tmp_path)
    said = rla("train-policy", "--run", "runs/t", "--out", "both", "--set", "launch.training=two.yaml", folder=tmp_path)
    assert said.count("policy: both") == 1  # one of the two speaks
    alone, both = (load_file(tmp_path / name / "state" / "weights.safetensors") for name in ("alone", "both"))
    for name, value in alone.items():
        torch.testing.assert_close(both[name], value, atol=1e-5, rtol=1e-4)
    origins = [json.loads((tmp_path / name / "checkpoint.json").read_text())["origin"] for name in ("alone", "both")]
    assert origins[0] == origins[1]
    # The finished checkpoint of the same origin is kept, by whatever number of processes it is asked for.
    assert "policy: both" in rla("train-policy", "--run", "runs/t", "--out", "both", folder=tmp_path)


def test_a_configuration_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS + "launch: {training: no/such.yaml}\n")
    said = rla("train-rm", "--run", "runs/t", folder=tmp_path, status=2)
    assert "error: launch.training: no/such.yaml: no such file" in said


def test_the_command_line_is_made_again() -> None:
    assert arguments_of(TRAIN, GIVEN | NO_PATHS) == ["train-policy", "--iteration", "1"]
    options = {"params": Path("p.yaml"), "run": Path("r"), "iteration": 3, "seed": 5, "env": "alfworld"}
    given = GIVEN | NO_PATHS | options | {"set_": ["a.b=1", "c=2"], "overwrite": True, "path_out": Path("o")}
    found = " ".join(arguments_of(TRAIN, given))
    assert found == (
        "train-policy --params p.yaml --run r --iteration 3 --seed 5 --env alfworld --set a.b=1 --set c=2 --out o "
        "--overwrite"
    )


def test_what_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    config = load_config(None, ["launch.training=pipelines/accelerate/ddp.yaml"])
    found = launcher(TRAIN, config)
    assert found is not None
    assert found.name == "ddp.yaml"
    assert launcher(next(spec for spec in STAGES if spec.name == "rollout"), config) is None
    assert launcher(TRAIN, load_config(None)) is None
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launcher(TRAIN, config) is None
