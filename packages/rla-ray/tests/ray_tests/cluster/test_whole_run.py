"""Whole runs through `rla run` (`dvc repro`) on a cluster that loses nodes, and its head.

Each takes minutes: with `-m slow` (`make -f tests/bench/Makefile test-ray PYTEST_ARGS='-m slow'`).
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from ray_tests.cluster.conftest import Nodes
from tests.integration.pipelines import PARAMS, contents, environment, make_pipeline, until

pytestmark = pytest.mark.slow

COMMAND = ("rla", "run", "--iterations", "2", "--run", "runs/t")
OWN = "generator: {backend: scripted, context: 512}"
ON_RAY = "generator: {backend: ray, context: 512, own: {engine: scripted, replicas: 3, patience: 120}}"
DEADLINE = 900.0


def started(folder: Path, address: str = "") -> subprocess.Popen[str]:
    variables = environment() | ({"RAY_ADDRESS": address} if address else {})
    return subprocess.Popen(
        COMMAND, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=DEADLINE)
    return process.returncode, said


def made(folder: Path) -> dict[str, str]:
    """What the run consists of. Its parameters name the cluster, and nothing else does."""
    found = contents(folder / "runs/t")
    del found["config.yaml"]
    return found


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], float]:
    """The run without a cluster, and the seconds that it took."""
    folder, began = make_pipeline(tmp_path_factory.mktemp("calm") / "p", iterations=2), time.monotonic()
    code, said = ended(started(folder))
    assert code == 0, said
    return made(folder), time.monotonic() - began


def on_cluster(folder: Path) -> Path:
    assert OWN in PARAMS
    return make_pipeline(folder, iterations=2, params=PARAMS.replace(OWN, ON_RAY))


@pytest.mark.parametrize("number", range(5))
def test_a_node_killed_at_a_random_moment_changes_nothing(
    tmp_path: Path, nodes: Nodes, ray: object, calm: tuple[dict[str, str], float], number: int
) -> None:
    whole, seconds = calm
    process = started(on_cluster(tmp_path / "p"), nodes.address)
    time.sleep(random.uniform(0.1, 1.0) * seconds)
    nodes.kill_one()
    try:
        code, said = ended(process)
    finally:
        nodes.add()
    assert code == 0, said
    assert made(tmp_path / "p") == whole


def test_after_a_lost_head_the_same_command_goes_on_with_a_new_cluster(
    tmp_path: Path, calm: tuple[dict[str, str], float]
) -> None:
    folder = on_cluster(tmp_path / "p")
    first = Nodes()
    process = started(folder, first.address)
    until(lambda: (folder / "runs/t/1/trajectories").exists() or process.poll() is not None, seconds=DEADLINE)
    first.cluster.remove_node(first.cluster.head_node, allow_graceful=False)
    code, said = ended(process)
    assert code != 0 and "Traceback" not in said, said
    finished = {path: path.stat().st_mtime_ns for path in (folder / "runs/t").rglob("part-*.parquet")}
    first.cluster.shutdown()
    second = Nodes()
    try:
        code, said = ended(started(folder, second.address))
    finally:
        second.cluster.shutdown()
    assert code == 0, said
    assert made(folder) == calm[0]
    assert {path: os.stat(path).st_mtime_ns for path in finished} == finished
