"""How many workers train on a cluster, and what becomes of an attempt that ended."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rla_ray.crew import Crew, crew_of_rest, first_crew
from rla_ray.training import rank
from rla_ray.training.rank import RankOrder, ReportedProgress, run_rank

from rla.config.sections import LaunchConfig
from rla.errors import UserError
from tests.unit.builders import configured

GPUS = [{"CPU": 16.0}, {"CPU": 64.0, "GPU": 8.0}, {"CPU": 64.0, "GPU": 8.0}]  # a head without GPUs, two nodes
CPUS = [{"CPU": 2.0}, {"CPU": 8.0}, {"CPU": 8.0}]


def launch(*values: str) -> LaunchConfig:
    return configured("launch.training=ray", *(f"launch.{value}" for value in values)).launch


def test_every_gpu_has_a_worker() -> None:
    assert first_crew(launch(), GPUS) == Crew(workers=16, cpus=1, gpus=1)
    assert first_crew(launch("own.workers=12"), GPUS).workers == 12
    assert first_crew(launch("own.cpus=16"), GPUS).workers == 8  # of 64 CPUs there are four times 16
    assert first_crew(launch("own.gpus=0"), GPUS) == Crew(workers=3, cpus=1, gpus=0)


def test_without_gpus_every_node_has_a_worker() -> None:
    assert first_crew(launch(), CPUS) == Crew(workers=3, cpus=1, gpus=0)
    assert first_crew(launch("own.cpus=4"), CPUS) == Crew(workers=2, cpus=4, gpus=0)
    assert first_crew(launch("own.workers=4", "own.cpus=4"), CPUS).workers == 4


@pytest.mark.parametrize(
    ("values", "nodes", "message"),
    [
        (
            ["own.workers=17"],
            GPUS,
            "17 workers of 1 CPU and 1 GPU each, and the cluster has room for 16;",
        ),
        (["own.gpus=1"], CPUS, "each worker needs 1 CPU and 1 GPU, and no node of the cluster has that"),
        (
            ["own.cpus=9"],
            CPUS,
            "each worker needs 9 CPUs, and no node .*; lower launch.own.cpus",
        ),
        (["own.fewest=4"], CPUS, "launch.own.fewest: 4 workers of 1 CPU each, and the cluster has room for 3"),
        (["replicas=3"], GPUS, "launch.replicas is 3, with 16 workers on the cluster; .* set launch.own.workers"),
    ],
)
def test_a_cluster_that_is_too_small_is_refused(values: list[str], nodes: list[Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        first_crew(launch(*values), nodes)


def test_more_workers_than_the_fewest_are_wanted() -> None:
    with pytest.raises(UserError, match=r"launch.own.fewest is 5; it must be at most launch.own.workers"):
        launch("own.workers=4", "own.fewest=5")


def test_what_is_left_goes_on() -> None:
    crew = first_crew(launch(), GPUS)
    assert crew_of_rest(crew, launch(), GPUS).workers == 16
    assert crew_of_rest(crew, launch(), GPUS[:2]).workers == 8
    with pytest.raises(UserError, match="has room for 8 workers of 1 CPU and 1 GPU each, fewer than 12; add nodes"):
        crew_of_rest(crew, launch("own.fewest=12"), GPUS[:2])
    with pytest.raises(UserError, match=r"has room for 0 workers .*, fewer than 1"):
        crew_of_rest(crew, launch(), GPUS[:1])


def test_groups_keep_their_size() -> None:
    """Of 16 workers in four groups of four, 15 that are left are three groups."""
    config = launch("replicas=4")
    crew = first_crew(config, GPUS)
    assert crew.replicas == 4
    left = crew_of_rest(crew, config, [{"CPU": 64.0, "GPU": 8.0}, {"CPU": 64.0, "GPU": 7.0}])
    assert (left.workers, left.replicas) == (12, 3)
    assert crew_of_rest(left, config, GPUS[:2]).replicas == 2
    with pytest.raises(UserError, match=r"room for 3 workers .* fewer than 4 of a group \(launch.replicas\)"):
        crew_of_rest(left, config, [{"CPU": 64.0, "GPU": 3.0}])


def order(tmp_path: Path, **changed: Any) -> RankOrder:
    from rla_ray.code_digest import code_digest

    told = {"ctx": pickle.dumps(None), "folder": tmp_path, "reads": (), "code": code_digest(), "board": None} | changed
    return RankOrder(environment={}, **told)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"folder": Path("/not/there")},
            "/not/there: not there on node .*; training on Ray needs folders",
        ),
        ({"reads": (Path("shard"),)}, "shard: not there on node .*; training on Ray needs folders that all nodes see"),
        (
            {"code": "another", "ctx": b"of a module that is not here"},
            "runs other code of rla .* than the stage; install the same on all nodes",
        ),
    ],
)
def test_a_node_that_cannot_train_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLA_LAUNCHED", "1")  # so that it is unset afterwards
    with pytest.raises(UserError, match=message):
        run_rank(order(tmp_path, **changed))


@dataclass
class Context:
    """A context as a rank reads it; a pickle needs its class in a module."""

    spec: Any
    config: Any
    progress: Any = None


def test_a_rank_has_the_threads_of_the_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLA_LAUNCHED", "1")  # so that it is unset afterwards
    monkeypatch.setattr(rank, "devices_of_ray_worker", list)
    stage = SimpleNamespace(run=lambda ctx: seen.append(torch.get_num_threads()))
    monkeypatch.setattr(rank, "import_module", lambda name: stage)

    ctx = Context(spec=SimpleNamespace(module="stage"), config=configured("launch.threads=3"))
    before = torch.get_num_threads()
    try:
        run_rank(order(tmp_path, ctx=pickle.dumps(ctx), board=SimpleNamespace(put=print)))
    finally:
        torch.set_num_threads(before)
    assert seen == [3]


def test_the_first_rank_alone_reports() -> None:
    said: list[Any] = []

    class Kept:
        def put(self, item: Any) -> None:
            said.append(item)

    progress = ReportedProgress(Kept())
    progress.start("train-rm", total=3)
    progress.advance(loss=0.5)
    progress.note("warm")
    assert said == [("start", "train-rm", {"total": 3}), ("advance", 1, {"loss": 0.5}), ("note", "warm", {})]
    ReportedProgress(None).advance(2)
