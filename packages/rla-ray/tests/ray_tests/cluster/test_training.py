"""`launch.training: ray`: workers of Ray Train give what one process gives, also where one of them is killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from rla_ray.engines.cluster import engine_states, engines_asleep, known_engines, stood_engines
from rla_ray.training.on_ray import train_on_ray
from safetensors.torch import load_file

from ray_tests.cluster import dying_rank
from ray_tests.cluster.conftest import Nodes, Rla
from ray_tests.cluster.patience import node_words, patience
from rla.cli.progress import LineProgress
from rla.config import Config
from rla.errors import UserError
from rla.pipeline import StageContext, StageSpec
from rla.store.layout import resource
from rla.training.stage import TrainingJob
from tests.integration.pipelines import until
from tests.integration.test_ranks import needs_deepspeed
from tests.unit.builders import configured
from tests.unit.training.builders import tiny_model

DEADLINE = 300.0  # seconds: a worker's process starts within seconds on an idle machine
SPEC = StageSpec(
    name="dying", module="ray_tests.cluster.dying_rank", summary="", example="", reads=(), writes=(), sections=()
)


def on_workers(nodes: Nodes, workers: int, *more: str) -> list[str]:
    """Parameters of a training stage."""
    return [
        *("launch.training=ray", "launch.own.restarts=1", f"launch.own.workers={workers}"),
        *(f"launch.own.address={nodes.address}", *more),
    ]


def options(values: list[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def judged(rla: Rla, folder: Path) -> None:
    """A run with rewards of its first iteration, some of which train."""
    params = folder / "params.yaml"
    params.write_text(params.read_text().replace("credit: {", "credit: {policy_band: [-1.0, 1.0], "))
    for stage in ("rollout", "score-steps", "validate-tasks", "compute-rewards"):
        rla(stage, "--run", "r")


def assert_same(one: Path, two: Path) -> None:
    for file in ("weights", "moments"):
        expected, found = (load_file(folder / "state" / f"{file}.safetensors") for folder in (one, two))
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "sharing",
    [
        ("launch.own.configuration=pipelines/accelerate/ddp.yaml",),
        # Two groups of workers: a single process would be refused.
        ("launch.own.configuration=pipelines/accelerate/fsdp2.yaml", "launch.replicas=2"),
        pytest.param(
            ("launch.own.configuration=pipelines/accelerate/deepspeed_zero2.yaml",),
            marks=[needs_deepspeed, pytest.mark.slow],
        ),
    ],
)
def test_two_workers_give_the_weights_of_one_process(
    rla: Rla, tmp_path: Path, nodes: Nodes, ray: Any, sharing: tuple[str, ...]
) -> None:
    judged(rla, tmp_path)
    rla("train-policy", "--run", "r", "--out", "alone")
    done = rla("train-policy", "--run", "r", "--out", "both", *options(on_workers(nodes, 2, *sharing)))
    assert done.stdout.count("policy: both") == 1
    assert_same(tmp_path / "alone", tmp_path / "both")
    origins = [json.loads((tmp_path / name / "checkpoint.json").read_text())["origin"] for name in ("alone", "both")]
    assert origins[0] == origins[1]
    assert not (tmp_path / "both.partial").exists()


def test_too_few_cpus_are_one_clear_error(rla: Rla, tmp_path: Path, nodes: Nodes, ray: Any) -> None:
    judged(rla, tmp_path)
    done = rla("train-rm", "--run", "r", *options(on_workers(nodes, 9)), check=False)
    assert done.returncode == 2
    assert "error: launch.own.workers: 9 workers of 1 CPU each, and the cluster has room for 3" in done.stderr
    done = rla("train-rm", "--run", "r", *options(on_workers(nodes, 1, "launch.own.cpus=64")), check=False)
    assert done.returncode == 2 and "each worker needs 64 CPUs, and no node of the cluster has that" in done.stderr


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process makes, uninterrupted."""
    folder = tmp_path_factory.mktemp("alone")
    tiny_model(folder / "start")
    (folder / "plan").write_text("none")
    dying_rank.run(context(folder, configured()))
    return folder


def context(folder: Path, config: Config) -> StageContext:
    log = (folder / "log").open("a")
    return StageContext(spec=SPEC, stages=(), config=config, run=folder, iteration=1, progress=LineProgress(log))


def trained(alone: Path, folder: Path, plan: str, values: list[str]) -> str:
    """What the driver says of a training that is interrupted as `plan` says."""
    shutil.copytree(alone / "start", folder / "start")
    (folder / "plan").write_text(plan)
    ctx = context(folder, configured(*values))
    ddp = resource("pipelines/accelerate/ddp.yaml")
    train_on_ray(TrainingJob(ctx=ctx, out=folder / "out", reads=(folder / "start",), configuration=ddp))
    return (folder / "log").read_text()


def updates(folder: Path) -> list[int]:
    """That the first rank made, those of all attempts."""
    return [int(line) for line in (folder / "updates-0").read_text().split()]


def test_a_killed_worker_costs_what_was_not_saved(alone: Path, tmp_path: Path, nodes: Nodes, ray: Any) -> None:
    said = trained(alone, tmp_path, "worker", on_workers(nodes, 2))
    assert "a worker was lost" in said and "2 workers go on from the last saved update" in said
    assert updates(tmp_path) == [1, 2, 3, 3, 4, 5]
    assert_same(alone / "out", tmp_path / "out")
    assert not (tmp_path / "out.partial").exists()


def test_a_killed_node_leaves_the_training_to_the_others(alone: Path, tmp_path: Path, nodes: Nodes, ray: Any) -> None:
    def kill() -> None:
        until(lambda: all((tmp_path / f"waits-{number}").exists() for number in range(3)), seconds=DEADLINE)
        nodes.kill_one()
        (tmp_path / "killed").touch()

    with ThreadPoolExecutor(1) as other:
        killing = other.submit(kill)
        try:
            said = trained(alone, tmp_path, "node", on_workers(nodes, 3, "launch.own.fewest=2"))
            killing.result()
        finally:
            nodes.add()
    assert "a worker was lost" in said and "; 2 workers " in said  # some tries later, where the node is missed late
    assert updates(tmp_path)[:3] == [1, 2, 3] and updates(tmp_path)[-1] == 5 and updates(tmp_path).count(2) == 1
    assert_same(alone / "out", tmp_path / "out")


def test_what_the_user_can_mend_is_not_tried_again(alone: Path, tmp_path: Path, nodes: Nodes, ray: Any) -> None:
    with pytest.raises(UserError, match="rows: damaged; make them again"):
        trained(alone, tmp_path, "mistake", on_workers(nodes, 2))
    assert updates(tmp_path) in ([1, 2, 3], [1, 2])


def test_a_worker_that_is_lost_again_ends_the_stage(alone: Path, tmp_path: Path, nodes: Nodes, ray: Any) -> None:
    with pytest.raises(UserError, match=r"launch.own.restarts is 0; .* repeat the call"):
        trained(alone, tmp_path, "worker", on_workers(nodes, 2, "launch.own.restarts=0"))
    assert not (tmp_path / "out").exists()
    assert [path.name for path in (tmp_path / "out.partial").glob("update-*")] == ["update-000002"]


def test_a_killed_stage_leaves_nobody_who_trains(rla: Rla, tmp_path: Path, nodes: Nodes, ray: Any) -> None:
    judged(rla, tmp_path)
    words = ["train-policy", "--run", "r", *options(on_workers(nodes, 2, "train_policy.epochs=2000"))]
    process = subprocess.Popen([sys.executable, "-m", "rla", *words], cwd=tmp_path)
    until(lambda: (tmp_path / "r/1/policy.partial/sequences.jsonl").exists(), seconds=DEADLINE)
    process.kill()
    process.wait()
    assert "updates: 2" in rla("train-policy", "--run", "r", *options(on_workers(nodes, 2))).stdout


@pytest.mark.parametrize("gpus", [1, 2])
def test_an_engine_shares_its_gpu_with_a_worker_and_one_of_several_gpus_ends(
    alone: Path, tmp_path: Path, nodes: Nodes, ray: Any, gpus: int
) -> None:
    own = [f"generator.tensor_parallel={gpus}"] if gpus > 1 else []
    with patience():
        gpu = nodes.cluster.add_node(**node_words(gpus=gpus))  # that Ray counts, and torch does not find
    engines = ("generator.backend=ray", "generator.own.engine=transformers", f"generator.own.address={nodes.address}")
    values = on_workers(nodes, 1, *engines, *own)
    try:
        until(lambda: ray.available_resources().get("GPU") == gpus, seconds=DEADLINE)
        (engine,) = stood_engines(ray, configured(*values).generator)
        ray.get(engine.handle.state.remote())
        engines_asleep(configured(*values).generator)  # as the stage does before
        trained(alone, tmp_path, "none", values)
        states = engine_states(ray, known_engines(ray)).values()
        assert [state and state["asleep"] for state in states] == [True] * (gpus == 1)
    finally:
        nodes.cluster.remove_node(gpu)
    assert_same(alone / "out", tmp_path / "out")
