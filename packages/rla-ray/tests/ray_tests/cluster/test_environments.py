"""Environments that step on the nodes of a cluster: shards are those of a plain call, whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from programs_tests.integration.test_tool_loop import PARAMS as TOOL

from ray_tests.cluster.conftest import Nodes
from rla.store.reading import read_rows
from tests.integration.pipelines import PARAMS, contents, until

DEADLINE = 300.0  # seconds, on a machine that is busy
ACTOR = b"ray::EnvironmentHost"  # as Ray titles the process
TEXTWORLD = ("--set", "env.own.engine=textworld")
needs_textworld = pytest.mark.skipif(find_spec("alfworld") is None, reason="needs the stock engine: the extra alfworld")


def called(folder: Path, *words: str, status: int = 0) -> str:
    """A command line in `folder`, to its end; what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "rla", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    assert done.returncode == status, done.stderr
    return done.stderr


def on_nodes(nodes: Nodes, *more: str) -> list[str]:
    """Options of a stage whose environments step on the cluster."""
    values = ("pool.backend=ray", f"pool.own.address={nodes.address}", *more)
    return [word for value in values for word in ("--set", value)]


def living() -> Iterator[tuple[int, int, bytes]]:
    """Process, parent and command line of whatever runs in this test's namespace."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                yield int(entry.name), int(parent), (entry / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue


def actors() -> list[int]:
    """Processes of actors with environments, the ones with most children first: those hold episodes."""
    found = list(living())
    children = [parent for _, parent, _ in found]
    return sorted((pid for pid, _, line in found if line.startswith(ACTOR)), key=children.count, reverse=True)


def of_pools() -> list[int]:
    """Nurseries and worker processes, wherever they are."""
    return [pid for pid, _, line in living() if b"rla.envs.fork_server" in line]


@pytest.fixture(autouse=True)
def nothing_is_left(ray: Any) -> Iterator[None]:
    """However a stage ends, its actors and their worker processes end with it."""
    yield
    until(lambda: not actors() and not of_pools(), seconds=60)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which a plain call has played TextWorld."""
    folder = tmp_path_factory.mktemp("played")
    (folder / "params.yaml").write_text(
        PARAMS.replace("tasks_per_iteration: 4", "concurrency: 6, tasks_per_iteration: 3")
    )
    for stage in ("make-tasks", "init-model", "rollout"):
        called(folder, stage, "--run", "r", *TEXTWORLD)
    return folder


def check_same(made: Path, plain: Path) -> None:
    """The shard is that of a plain call, byte by byte."""
    assert [row["error"] for row in read_rows(made, "trajectories", ["error"])] == [None] * 12
    assert contents(made) == contents(plain)


@needs_textworld
@pytest.mark.parametrize("number", [1, 3])
def test_shards_of_textworld_on_nodes_are_a_plain_call_s_byte_by_byte(played: Path, nodes: Nodes, number: int) -> None:
    out = f"on{number}"
    options = on_nodes(nodes, f"pool.own.actors={number}")
    said = called(played, "rollout", "--run", "r", "--out", out, *TEXTWORLD, *options)
    check_same(played / out, played / "r/1/trajectories")
    assert "were lost" not in said


def begun(folder: Path, out: str, nodes: Nodes, *more: str) -> subprocess.Popen[str]:
    """A stage whose environments step on three nodes, after its first group."""
    words = ("--run", "r", "--out", out, *TEXTWORLD, *on_nodes(nodes, *more))
    process = subprocess.Popen(
        [sys.executable, "-m", "rla", "rollout", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: any((folder / out).glob("part-*.parquet")) or process.poll() is not None, seconds=DEADLINE)
    assert process.poll() is None, process.stderr and process.stderr.read()
    assert len(actors()) == 3
    return process


def said_to_the_end(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    return errors


@needs_textworld
def test_a_killed_actor_leaves_no_trace(played: Path, nodes: Nodes) -> None:
    process = begun(played, "actor", nodes)
    os.kill(actors()[0], signal.SIGKILL)
    said = said_to_the_end(process)
    check_same(played / "actor", played / "r/1/trajectories")
    assert "1 actors with environments were lost" in said


@needs_textworld
def test_a_killed_node_leaves_no_trace(played: Path, nodes: Nodes) -> None:
    process = begun(played, "node", nodes)
    nodes.kill_one()
    try:
        said = said_to_the_end(process)
    finally:
        nodes.add()
    check_same(played / "node", played / "r/1/trajectories")
    assert "1 actors with environments were lost" in said


@needs_textworld
def test_an_actor_that_hangs_leaves_no_trace(played: Path, nodes: Nodes) -> None:
    process = begun(played, "hung", nodes, "pool.step_deadline_s=5")
    os.kill(actors()[0], signal.SIGSTOP)
    said = said_to_the_end(process)
    check_same(played / "hung", played / "r/1/trajectories")
    assert "actors with environments were lost" in said


@needs_textworld
def test_actors_end_with_a_stage_that_is_killed_and_the_rest_is_played_elsewhere(played: Path, nodes: Nodes) -> None:
    process = begun(played, "killed", nodes)
    process.kill()
    process.communicate(timeout=DEADLINE)
    until(lambda: not actors() and not of_pools(), seconds=60)
    called(played, "rollout", "--run", "r", "--out", "killed", *TEXTWORLD)
    check_same(played / "killed", played / "r/1/trajectories")


def test_programs_run_in_sandboxes_on_the_nodes(tmp_path: Path, nodes: Nodes) -> None:
    """Conversations of the scripted teacher, whose programs run."""
    (tmp_path / "params.yaml").write_text(TOOL.replace("FORMAT", "hermes"))
    called(tmp_path, "make-tasks", "--run", "r")
    called(tmp_path, "collect", "--run", "r")
    called(tmp_path, "collect", "--run", "r", "--out", "away", *on_nodes(nodes))
    assert contents(tmp_path / "away") == contents(tmp_path / "r/0/conversations")


def test_a_cluster_that_has_too_few_cores_is_one_clear_error(tmp_path: Path, nodes: Nodes) -> None:
    (tmp_path / "params.yaml").write_text(TOOL.replace("FORMAT", "hermes"))
    called(tmp_path, "make-tasks", "--run", "r")
    said = called(tmp_path, "collect", "--run", "r", *on_nodes(nodes, "pool.own.cpus=64"), status=2)
    assert "pool.own.cpus: 64 cores for each actor" in said and "Traceback" not in said
