"""`rla run`: what it calls, how it ends, and that DVC finds it up to date."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from rla.store.layout import resource
from tests.integration.pipelines import PARAMS, environment, run

pytestmark = pytest.mark.usefixtures("forked_python")

RUN = ["rla", "run", "--iterations", "1", "--run", "r"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(resource("dvc.yaml"), tmp_path)
    (tmp_path / "params.yaml").write_text(PARAMS)
    return tmp_path


def with_stage(folder: Path, command: str) -> None:
    """A stage of somebody's own after the tasks, one more after that, and no other."""
    pipeline = yaml.safe_load((folder / "dvc.yaml").read_text())
    own = {"cmd": command, "deps": ["r/0/pool"], "outs": [{"own": {"cache": False}}]}
    after = {"cmd": "touch after", "deps": ["own"], "outs": [{"after": {"cache": False}}]}
    pipeline["stages"] = {"make-tasks": pipeline["stages"]["make-tasks"], "own": own, "after": after}
    (folder / "dvc.yaml").write_text(yaml.safe_dump(pipeline, sort_keys=False))


def test_dvc_finds_a_run_up_to_date_and_a_second_call_runs_nothing(folder: Path) -> None:
    said = run(RUN, folder).splitlines()
    assert sum(line.startswith("iteration 1 of 1: ") for line in said) == 8  # seven of the loop, and the evaluation
    assert "up to date" in run(["dvc", "repro"], folder)
    again = run([*RUN, "--verbose"], folder)
    assert "didn't change, skipping" in again and "Running stage" not in again


def test_a_stage_that_fails_ends_the_run_with_its_status_and_what_is_done_stays(folder: Path) -> None:
    with_stage(folder, "exit 7")
    done = subprocess.run(RUN, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 7 and "exit 7: exit status 7" in done.stdout
    assert not (folder / "after").exists()
    with_stage(folder, "echo mine > own")
    again = run([*RUN, "--verbose"], folder)
    assert "Stage 'make-tasks' didn't change" in again and (folder / "own").read_text() == "mine\n"
    assert (folder / "after").exists()


def test_a_damaged_lock_of_dvc_is_named_with_its_remedy(folder: Path) -> None:
    (folder / "dvc.lock").write_text("schema: '2.0'\nstages:\n  make-tasks:\n    cm")
    done = subprocess.run(RUN, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "if dvc.lock is damaged, remove it" in done.stderr
    assert os.linesep not in done.stderr.strip()
