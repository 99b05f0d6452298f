"""`launch.training`: an ordinary call trains on several processes and writes what one process writes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from rla.cli.app import run
from rla.errors import UserError
from rla.processes import LAUNCHED, launcher
from rla.store.layout import resource
from rla.training.checkpoints import TrainingProgress
from tests.integration.conftest import rla_in
from tests.integration.pipelines import PARAMS, alive, killed_when, until
from tests.unit.builders import configured, install

pytestmark = pytest.mark.usefixtures("forked_python")

Call = Callable[..., str]
OWN_PYTHON = sys.executable  # which that fixture replaces


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with rewards of its first iteration, and a configuration of two processes."""
    folder = tmp_path_factory.mktemp("launch")
    two = yaml.safe_load(resource("pipelines/accelerate/ddp.yaml").read_text()) | {"num_processes": 2}
    (folder / "two.yaml").write_text(yaml.safe_dump(two | {"main_process_port": 0}))
    # Judgements differ where nobody wins; so there is something to train on.
    with rla_in(folder, PARAMS.replace("credit: {", "credit: {policy_band: [-1.0, 1.0], ")) as rla:
        for stage in ("rollout", "score-steps", "validate-tasks", "compute-rewards"):
            assert rla(stage, "--run", "runs/t")[0] == 0
    return folder


@pytest.fixture
def judged(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of its own, which is the working folder."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "judged"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path / "judged"


@pytest.fixture
def call(judged: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    """Calls a stage on the run; returns what it and the processes that it launches have printed."""

    def rla(stage: str, *arguments: str, status: int = 0) -> str:
        capfd.readouterr()
        assert run([stage, "--run", "runs/t", *arguments]) == status
        return "".join(capfd.readouterr())

    return rla


def test_the_stage_is_launched_and_gives_what_one_process_gives(judged: Path, call: Call) -> None:
    call("train-policy", "--out", "alone")
    said = call("train-policy", "--out", "both", "--set", "launch.training=two.yaml")
    assert said.count("policy: both") == 1  # one of the two speaks
    alone, both = (load_file(judged / name / "state" / "weights.safetensors") for name in ("alone", "both"))
    for name, value in alone.items():
        torch.testing.assert_close(both[name], value, atol=1e-5, rtol=1e-4)
    origins = [json.loads((judged / name / "checkpoint.json").read_text())["origin"] for name in ("alone", "both")]
    assert origins[0] == origins[1]
    # The finished checkpoint of the same origin is kept, by whatever number of processes it is asked for.
    assert "policy: both" in call("train-policy", "--out", "both")


def test_a_configuration_that_is_not_there_is_named(call: Call) -> None:
    said = call("train-rm", "--set", "launch.training=no/such.yaml", status=2)
    assert "error: launch.training: no/such.yaml: no such file" in said and "a launcher (installed: " in said


FARM = """
from dataclasses import dataclass, replace
from importlib import import_module


@dataclass(frozen=True, kw_only=True)
class Training:
    configuration: str = "pipelines/accelerate/ddp.yaml"

    def train(self, job):
        ctx = job.ctx
        assert job.configuration.name == "ddp.yaml" and ctx.path("out") == job.out
        assert all(folder.exists() for folder in job.reads)
        ctx.progress.note("the farm trains")
        import_module(ctx.spec.module).run(replace(ctx, config=replace(ctx.config, launch=type(ctx.config.launch)())))


class Launcher:
    Training = Training
"""


def test_a_launcher_of_another_package_trains(judged: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    (judged / "launcher_of_a_test.py").write_text(FARM)
    install(judged, "farm", "1.0", "[rla.launchers]\nfarm = launcher_of_a_test:Launcher\n")
    monkeypatch.syspath_prepend(str(judged))
    for out, more in (("alone", ()), ("farm", ("--set", "launch.training=farm"))):
        said = call("train-policy", "--out", out, *more)
    assert "the farm trains" in said and "policy: farm" in said
    alone, farm = ((judged / name / "state" / "weights.safetensors").read_bytes() for name in ("alone", "farm"))
    assert alone == farm


def test_what_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", LAUNCHED):
        monkeypatch.delenv(name, raising=False)
    config = configured("launch.training=pipelines/accelerate/ddp.yaml")
    found = launcher(config)
    assert found is not None
    assert found.name == "ddp.yaml"
    assert launcher(configured()) is None
    for name in ("WORLD_SIZE", LAUNCHED):
        monkeypatch.setenv(name, "2")
        assert launcher(config) is None
        monkeypatch.delenv(name)


def test_a_configuration_of_one_process_does_not_launch_again(judged: Path, call: Call) -> None:
    """accelerate names no number of processes to a single one."""
    (judged / "one.yaml").write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_processes: 1\n")
    assert "policy: runs/t/1/policy" in call("train-policy", "--set", "launch.training=one.yaml")


def test_processes_end_with_the_one_that_waits_for_them(judged: Path, call: Call) -> None:
    """Killed, it leaves nobody who trains; called again, the stage goes on."""
    arguments = ["--run", "runs/t", "--set", "launch.training=two.yaml", "--set", "train_policy.epochs=2000"]
    partial, workers, before = judged / "runs/t/1/policy.partial", set[int](), descendants(os.getpid())

    def training() -> bool:
        if (partial / "sequences.jsonl").exists():
            workers.update(descendants(os.getpid()) - before)
        return bool(workers)

    # processes of their own, because forked ones would not have each other as parents
    assert killed_when(training, [OWN_PYTHON, "-m", "rla", "train-policy", *arguments], judged)
    assert len(workers) >= 4  # the stage, the launcher and two ranks
    until(lambda: not any(alive(pid) for pid in workers), seconds=20)
    assert (partial / "lock").exists()
    assert "updates: 2" in call("train-policy")


def test_one_output_is_trained_by_one_call(tmp_path: Path) -> None:
    first, second = (TrainingProgress(out=tmp_path / "out", interval_s=60.0) for _ in range(2))
    with (
        first.locked(first=True),
        pytest.raises(UserError, match="out: another process is training it"),
        second.locked(first=True),
    ):
        pass
    with second.locked(first=True):
        assert (tmp_path / "out.partial").exists()
    assert list(tmp_path.iterdir()) == []


def descendants(pid: int) -> set[int]:
    """Of a process, whatever their session."""
    parents = {int(path.name): parent_of(path) for path in Path("/proc").glob("[0-9]*")}
    found, seen = {pid}, 0
    while len(found) > seen:
        seen = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found - {pid}


def parent_of(path: Path) -> int:
    try:
        return int(path.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0
