"""A Ray cluster of several nodes on this machine, where there is the loopback device alone (`test-ray`)."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from rla_ray.connection import NAMESPACE

from ray_tests.cluster.patience import node_words, patience
from tests.integration.pipelines import PARAMS

Rla = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ray listens on every address of the machine that it runs on."""
    if [name for _, name in socket.if_nameindex()] == ["lo"]:
        return
    mark = pytest.mark.skip(reason="Ray is tested where there is no network: test-ray")
    for item in items:
        if Path(item.path).is_relative_to(Path(__file__).parent):
            item.add_marker(mark)


class Nodes:
    """A cluster whose head has no engine to lose: nodes can be added and killed."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        with patience():
            self.cluster = Cluster(initialize_head=True, connect=False, head_node_args=node_words())
        self.others: list[Any] = []

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self) -> None:
        with patience():
            self.others.append(self.cluster.add_node(**node_words()))

    def kill_one(self) -> None:
        """As a machine that loses its power: its workers end with it, where Ray's own would find out later."""
        node = self.others.pop()
        (raylet,) = node.all_processes["raylet"]
        processes = psutil.Process(raylet.process.pid).children(recursive=True)
        self.cluster.remove_node(node, allow_graceful=False)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    made.add()
    made.add()
    yield made
    made.cluster.shutdown()


@pytest.fixture(scope="session")
def ray(nodes: Nodes) -> Iterator[Any]:
    """The module, connected as a stage is."""
    from rla_ray.connection import connected

    module = connected(nodes.address)
    yield module
    module.shutdown()  # a node to which somebody is connected does not end


@pytest.fixture(autouse=True)
def no_engines(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test begins without an engine."""
    yield
    if "ray" in request.fixturenames or "nodes" in request.fixturenames:
        from rla_ray.engines.cluster import ended_engines

        ended_engines(request.getfixturevalue("ray"))


@pytest.fixture
def rla(tmp_path: Path) -> Rla:
    """A command line in a folder with small parameters."""
    (tmp_path / "params.yaml").write_text(PARAMS)

    def call(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "rla", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    return call


def on_ray(nodes: Nodes, engine: str, *more: str) -> list[str]:
    """Options of a stage whose engines stand on the cluster."""
    values = ("backend=ray", f"own.engine={engine}", f"own.address={nodes.address}", *more)
    return [word for value in values for word in ("--set", f"generator.{value}")]


__all__ = ["NAMESPACE", "Nodes", "Rla", "on_ray"]
