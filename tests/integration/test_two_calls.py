"""Two calls that would write the same folder at the same time: the second is refused, and the first notices nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla.store.manifest import MANIFEST
from tests.integration import gated_rollout
from tests.integration.conftest import Rla, stages
from tests.integration.pipelines import environment, until

pytestmark = pytest.mark.usefixtures("forked_python")

SHARD = Path("r/1/trajectories")


@pytest.fixture
def playing(rla: Rla, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A rollout of the run `r` that waits before its second part until `gates/2` and so on are there."""
    stages(rla, "make-tasks", "init-model")
    (gates := tmp_path / "gates").mkdir()
    (gates / "1").touch()
    command = [sys.executable, gated_rollout.__file__, str(gates), "rollout", "--run", "r"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL) as process:
        until(lambda: list((tmp_path / SHARD).glob("part-*")), seconds=120)
        yield process
        process.kill()


def test_a_second_rollout_on_one_folder_is_refused(rla: Rla, tmp_path: Path, playing: subprocess.Popen[bytes]) -> None:
    for more in ((), ("--overwrite",), ("--seed", "7", "--overwrite"), ("--slice", "1/2")):
        code, _, said = rla("rollout", "--run", "r", *more)
        assert code == 2
        assert said.splitlines()[-1].startswith(f"error: {tmp_path / SHARD}: another call is writing it")
        assert f"process {Path('gates/pid').read_text()}" in said
    for gate in range(2, 9):
        (tmp_path / "gates" / str(gate)).touch()
    assert playing.wait(60) == 0
    assert (SHARD / MANIFEST).exists()
    assert not list(Path("r").rglob(".*.lock"))


def test_a_killed_call_leaves_no_lock_behind(rla: Rla, playing: subprocess.Popen[bytes]) -> None:
    os.kill(int(Path("gates/pid").read_text()), signal.SIGKILL)
    assert playing.wait(60) == -signal.SIGKILL
    code, _, said = rla("rollout", "--run", "r")
    assert code == 0, said
    assert not list(Path("r").rglob(".*.lock"))
