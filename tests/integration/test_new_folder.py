"""`pip install rla` in an empty folder is enough: `rla init` and `rla run` there, from the wheel, outside of git. All
of it is slow; test_outside_environment.py has a run of another environment, and makes tasks of ALFWorld.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.fresh import link_requirements
from tests.integration.pipelines import PARAMS, environment, until

TOP = Path(__file__).parents[2]

NAMED = f"name: alfworld-tiny\n{PARAMS}"


@pytest.fixture(scope="module")
def rla(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of a fresh environment with the wheel and the distributions that it requires, and no other."""
    pytest.importorskip("hatchling", reason="needs the dev extra")
    folder = tmp_path_factory.mktemp("wheel")
    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(built, cwd=TOP, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("rla-*.whl")
    place = folder / "venv"
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    link_requirements("rla", site)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--ignore-installed", str(wheel)], check=True, timeout=120)
    return place / "bin/rla"


@pytest.fixture
def folder(rla: Path, tmp_path: Path) -> Path:
    """A folder that `rla init` has begun, with parameters that make the run short."""
    assert "next: cd mine && rla run" in called(rla, tmp_path, "init", "mine")
    (tmp_path / "mine/params.yaml").write_text(NAMED)
    return tmp_path / "mine"


def own_environment() -> dict[str, str]:
    return {key: value for key, value in environment().items() if key not in ("PYTHONPATH", "ALFWORLD_DATA")}


def called(rla: Path, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(rla), *arguments], cwd=folder, env=own_environment(), capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_loop_turns_in_an_empty_folder(rla: Path, folder: Path) -> None:
    (folder / "params.yaml").write_text(re.sub("(rollouts_per_task|updates|max_tasks|max_steps): .", r"\1: 1", NAMED))
    assert called(rla, folder, "envs", "--json").count('"name"') == 1  # no package is in its environment
    assert "Held-out tasks" in called(rla, folder, "run", "--iterations", "1")
    assert (folder / "runs/alfworld-tiny/1/policy/checkpoint.json").is_file()
    assert not any(commands(folder))
    status = [sys.executable, "-m", "dvc", "status"]
    done = subprocess.run(status, cwd=folder, env=own_environment(), capture_output=True, text=True, timeout=100)
    assert "Data and pipelines are up to date" in done.stdout  # the report too


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_an_interrupt_ends_all_that_was_started(rla: Path, folder: Path, sent: signal.Signals, status: int) -> None:
    call = subprocess.Popen(
        [str(rla), "run", "--iterations", "1"],
        cwd=folder,
        env=own_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until((folder / "runs/alfworld-tiny/0/pool/_manifest.parquet").exists, seconds=120)  # the first stage is done
    call.send_signal(sent)
    assert call.wait(100) == status
    until(lambda: not any(commands(folder)), seconds=60)


@pytest.mark.slow
def test_a_stage_that_fails_fails_the_call(rla: Path, folder: Path) -> None:
    done = subprocess.run(
        [str(rla), "run", "--iterations", "1", "--set", "rollout.max_failed_share=0", "--set", "tasks.kinds=[none]"],
        cwd=folder,
        env=own_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert "rla make-tasks" in done.stdout and "exit status 2" in done.stdout, done.stdout + done.stderr


def commands(folder: Path) -> Iterator[str]:
    """The command lines of the processes that work in `folder`."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder and int(process.name) != os.getpid():
                yield (process / "cmdline").read_text().replace("\0", " ")
        except OSError:
            pass  # it has ended
