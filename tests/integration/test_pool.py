"""`rla rollout` with environments in worker processes: equal shards, whatever happens to workers or to the stage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from rla.store.manifest import MANIFEST
from tests.integration.pipelines import PARAMS, contents, environment

pytestmark = pytest.mark.usefixtures("forked_python")

SETTINGS = PARAMS.replace("tasks_per_iteration: 4, rollouts_per_task: 4", "rollouts_per_task: 24, concurrency: 16")
SETTINGS = SETTINGS.replace("max_steps: 6, omit", "max_steps: 30, omit")
POOLED = ("--set", "pool.mode=always", "--set", "pool.workers=4", "--set", "pool.step_deadline_s=3")
OUT = Path("runs/t/1/trajectories")


@contextmanager
def rollout(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The stage, started in `folder`."""
    with subprocess.Popen(
        [sys.executable, "-m", "rla", "rollout", "--run", "runs/t", *options],
        cwd=folder,
        env=environment() | {"PYTHONPATH": str(Path(__file__).parents[2]), "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as stage:
        try:
            yield stage
        finally:
            stage.kill()


def finished(folder: Path, *options: str) -> str:
    """Run the stage to its end; what it said."""
    with rollout(folder, *options) as stage:
        said = stage.communicate(timeout=300)[1]
    assert stage.returncode == 0, said
    return said


def workers(folder: Path) -> list[int]:
    """The worker processes of a stage that runs in `folder`: forked from the fork server, which is not among them."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if b"rla.envs.fork_server" in (entry / "cmdline").read_bytes() and (entry / "cwd").readlink() == folder:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    found[int(entry.name)] = int(parent)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return sorted(pid for pid, parent in found.items() if parent in found)


def wait_for(condition: object, seconds: float = 120.0) -> None:
    assert callable(condition)
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def struck(pid: int, number: signal.Signals) -> bool:
    """Send a signal; False if the process has ended since it was found."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run whose environments step in the stage's own process."""
    folder = tmp_path_factory.mktemp("calm")
    (folder / "params.yaml").write_text(SETTINGS)
    finished(folder, "--set", "pool.mode=never")
    return folder


@pytest.fixture
def folder(tmp_path: Path, calm: Path) -> Path:
    """Tasks and model are there, so that a stage comes to its episodes soon."""
    subprocess.run(["cp", "-r", str(calm / "params.yaml"), str(calm / "runs"), str(tmp_path)], check=True)
    subprocess.run(["rm", "-r", str(tmp_path / OUT)], check=True)
    return tmp_path


def test_killed_and_hanging_workers_change_nothing(calm: Path, folder: Path) -> None:
    faults = [signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL, signal.SIGKILL]
    done: list[int] = []

    def strike(number: signal.Signals) -> bool:
        """A worker lives as long as its episode, and ended ones may still be leaving: there are seldom exactly four.

        One that was stopped keeps hanging. The newest is left alone: it may replace one that was lost, and a step
        ends its episode if it loses two.
        """
        found = workers(folder)
        others = [pid for pid in found[:-1] if pid not in done]
        if len(found) < 4 or not struck(chosen := others[len(others) // 2], number):
            return False
        done.append(chosen)
        return True

    with rollout(folder, *POOLED) as stage:
        for number in faults:
            wait_for(partial(strike, number))
            time.sleep(0.2)
        said = stage.communicate(timeout=300)[1]
    assert stage.returncode == 0, said
    assert "worker processes of environments died or hung and were replaced" in said
    assert contents(folder / "runs/t") == contents(calm / "runs/t")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_stage_that_is_ended_keeps_its_groups_and_leaves_no_process(
    number: signal.Signals, status: int, calm: Path, folder: Path
) -> None:
    with rollout(folder, *POOLED) as stage:
        wait_for(lambda: list((folder / OUT).glob("part-*.parquet")))
        kept = {path: path.stat().st_mtime_ns for path in (folder / OUT).glob("part-*.parquet")}
        assert workers(folder)
        stage.send_signal(number)
        said = stage.communicate(timeout=60)[1]
    assert stage.returncode == status
    assert "Traceback" not in said and "error" not in said
    interrupted = "interrupted: the same command goes on where this one stopped"
    assert (said.splitlines()[-1] == interrupted) == (number is not signal.SIGKILL)
    wait_for(lambda: not workers(folder), seconds=5)
    assert not (folder / OUT / MANIFEST).exists()
    # The settings of the pool are not part of the origin: the rest may be played in the stage's own process.
    finished(folder, "--set", "pool.mode=never")
    assert contents(folder / "runs/t") == contents(calm / "runs/t")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
