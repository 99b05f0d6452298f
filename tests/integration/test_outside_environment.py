"""`pip install rla` in an empty folder is enough, and so is an environment of another package: both are built and
installed into a fresh environment, `rla init` begins a folder outside of git, and `rla run` turns the loop there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rla.config import apply_overrides
from rla.store.manifest import digest
from rla.store.reading import read_rows
from tests.integration.fresh import link_requirements
from tests.integration.pipelines import environment
from tests.integration.test_new_folder import commands

TOP = Path(__file__).parents[2]
EXAMPLE = TOP / "examples/guess-number"
STUDY = TOP / "packages/rla-study"  # has the check of the contract
SMALLER = (  # than the example's own run
    "tasks.train_scenes=8",
    "tasks.test_scenes=6",
    "model.hidden_size=32",
    "model.layers=1",
    "model.intermediate_size=32",
    "warm_start.policy={examples: 48, steps: 12, batch_size: 8, lr: 3.0e-3}",
    "warm_start.reward={examples: 24, steps: 6, batch_size: 8, lr: 2.0e-3}",
    "rollout={tasks_per_iteration: 6, rollouts_per_task: 4}",
    "judge.votes=2",
    "credit={reward_model_band: [0.0, 1.0]}",
    "train_policy={lr: 1.0e-3, updates: 2}",
    "train_rm={lr: 1.0e-3, updates: 2}",
    "adaptation={alpha_low: 0.45, alpha_high: 0.55, max_tasks: 4}",  # nearly every task changes
    "evaluation.rollouts_per_task=2",
    "launch.threads=1",
)


@dataclass(frozen=True)
class Installed:
    """A folder in which programs of the fresh environment are called."""

    folder: Path
    programs: Path
    variables: dict[str, str]

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.variables, capture_output=True, text=True, timeout=600, check=False
        )

    def program(self, *command: str) -> str:
        """What it prints; fails with its output where it fails."""
        done = self.call(*command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def rla(self, *arguments: str) -> str:
        return self.program(str(self.programs / "rla"), *arguments)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A folder that `rla init` has begun, and a fresh environment into which pip has installed the wheel of rla. What
    rla requires comes from the environment of the tests.
    """
    pytest.importorskip("hatchling", reason="needs the dev extra")
    folder = tmp_path_factory.mktemp("outside")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    install_wheel(TOP, folder, "--python", str(python), "install")
    (site,) = (folder / "venv/lib").glob("python*/site-packages")
    link_requirements("rla", site, also=("pytest",))
    variables = {key: value for key, value in environment().items() if key not in ("PYTHONPATH", "ALFWORLD_DATA")}
    path = f"{python.parent}{os.pathsep}{variables['PATH']}"
    fresh = Installed(folder, python.parent, variables | {"PATH": path})
    assert "next: cd mine && rla run" in fresh.rla("init", "mine")
    return replace(fresh, folder=folder / "mine")


@pytest.fixture(scope="module")
def installed(alone: Installed) -> Installed:
    """The same with the wheel of the example, and its parameters."""
    params = yaml.safe_load((EXAMPLE / "params.yaml").read_text())
    (alone.folder / "params.yaml").write_text(yaml.safe_dump(apply_overrides(params, SMALLER)))
    site = alone.programs.parents[1] / "example"
    install_wheel(EXAMPLE, site.parent, "install", "--target", str(site))
    return replace(alone, variables=alone.variables | {"PYTHONPATH": str(site)})


def install_wheel(source: Path, folder: Path, *pip: str) -> None:
    """Build a wheel below `folder` and install it, without its requirements, by the command `pip`."""
    wheels = folder / f"wheel-{source.name}"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=120)
    install = [sys.executable, "-m", "pip", *pip, "--quiet", "--no-index", "--no-deps", *map(str, wheels.iterdir())]
    subprocess.run(install, check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def with_check(installed: Installed) -> Installed:
    """The same with rla-study, which has the check of the contract and which the other tests do without."""
    site = installed.programs.parents[1] / "check"
    install_wheel(STUDY, site.parent, "install", "--target", str(site))
    path = f"{installed.variables['PYTHONPATH']}{os.pathsep}{site}"
    return replace(installed, variables=installed.variables | {"PYTHONPATH": path})


def test_rla_alone_has_alfworld_and_makes_its_tasks(alone: Installed) -> None:
    assert [entry["name"] for entry in json.loads(alone.rla("envs", "--json"))] == ["alfworld"]
    few = ("--set", "tasks.train_scenes=2", "--set", "tasks.test_scenes=1")
    assert "tasks in runs/alone/0/pool" in alone.rla("make-tasks", "--run", "runs/alone", *few)


def test_rla_itself_is_the_installed_one(installed: Installed) -> None:
    program = "import rla, guess_number; print(rla.__file__, guess_number.__file__)"
    found = installed.program(str(installed.programs / "python"), "-c", program).split()
    places = (installed.programs.parent, installed.programs.parents[1] / "example")
    assert all(Path(file).is_relative_to(place) for file, place in zip(found, places, strict=True))


def test_it_is_found_by_its_entry_point(installed: Installed) -> None:
    found = {entry["name"]: entry for entry in json.loads(installed.rla("envs", "--json"))}
    assert found.keys() == {"alfworld", "guess-number"}
    entry = found["guess-number"]
    assert (entry["package"], entry["version"]) == ("guess-number", "0.1.0")
    assert entry["target"] == "guess_number:GuessNumber"
    assert entry["abilities"] == ["Judged", "Demonstrates", "Labels", "HasExpert", "Adapts"]
    table = installed.rla("envs")
    assert 'Guess a number by the answers "higher" and "lower".' in table
    assert max(map(len, table.splitlines())) > 100  # a pipe is not cut to the width of a terminal


def test_it_brings_a_command(installed: Installed) -> None:
    assert "Play a game in the terminal" in installed.rla("--help")
    assert "rla guess --seed 3" in installed.rla("guess", "--help")


def test_the_check_of_the_contract_is_in_another_package(installed: Installed) -> None:
    done = installed.call(str(installed.programs / "rla"), "envs", "--check", "guess-number")
    assert done.returncode == 2
    assert done.stderr.startswith("error: envs.check: no installed package does this; install the package")


def test_it_keeps_the_contract(with_check: Installed) -> None:
    *checks, last = with_check.rla("envs", "--check", "guess-number", "--params", "params.yaml").splitlines()
    assert all(check.startswith("ok ") for check in checks)
    assert last == f"{len(checks)} checks, 0 broken"


def test_its_own_tests_pass(with_check: Installed) -> None:
    shutil.copy(EXAMPLE / "test_guess_number.py", with_check.folder)
    assert " passed" in with_check.program(
        str(with_check.programs / "python"), "-m", "pytest", "-q", "test_guess_number.py"
    )


@pytest.fixture(scope="module")
def trained(installed: Installed) -> Path:
    """The run folder after two iterations."""
    assert "Held-out tasks" in installed.rla("run", "--run", "runs/t", "--iterations", "2")
    assert not any(commands(installed.folder))
    return installed.folder / "runs/t"


def metrics(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


def test_both_models_are_trained(trained: Path) -> None:
    for model in ("policy", "rm"):
        digests = [digest(trained / str(iteration) / model) for iteration in (0, 1, 2)]
        assert len(set(digests)) == 3
        assert metrics(trained / "2" / model)["updates"] > 0


def test_the_reward_model_judges_every_step(trained: Path) -> None:
    steps = [step for row in read_rows(trained / "1/trajectories", "trajectories") for step in row["steps"]]
    scores = list(read_rows(trained / "1/scores", "scores"))
    assert len(scores) == len(steps) > 0
    assert all(len(row["judgements"]) == 2 for row in scores)
    assert {vote["score"] for row in scores for vote in row["judgements"]} <= {1, -1}
    assert metrics(trained / "1")["labelled_steps"] == len(steps)


def test_tasks_change_in_both_directions_and_get_a_verdict(trained: Path) -> None:
    candidates = list(read_rows(trained / "1/candidates", "candidates"))
    assert {row["direction"] for row in candidates} == {"harder", "easier"}
    pending = {row["task_id"]: row for row in candidates if row["valid"]}
    verdicts = {row["task_id"] for row in read_rows(trained / "2/verdicts", "verdicts")}
    assert pending and verdicts == pending.keys()
    for row in pending.values():
        rules = json.loads(row["payload"])
        assert rules["low"] <= rules["secret"] <= rules["high"]
        assert row["plan_length"] == (rules["high"] - rules["low"] + 1).bit_length()


def test_the_evaluation_has_an_interval(trained: Path) -> None:
    found = metrics(trained / "eval/2")
    assert found["episodes"] == 12
    assert 0 <= found["success_low"] <= found["success"] <= found["success_high"] <= 1
    assert found["success_low"] < found["success_high"]


def test_the_pipeline_is_complete(trained: Path, installed: Installed) -> None:
    assert (trained / "report/report.html").exists()
    assert "up to date" in installed.program("dvc", "status")
