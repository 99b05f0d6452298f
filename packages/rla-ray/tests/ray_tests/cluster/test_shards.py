"""Shards of stages whose engines stand on a cluster: those of a call with an engine of its own, whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rla_ray.engines.cluster import engine_states, known_engines

from ray_tests.cluster.conftest import Nodes, Rla, on_ray
from rla.store.reading import read_rows
from tests.integration.pipelines import contents, until
from tests.integration.test_slices import close

DEADLINE = 120.0


def begun(rla: Rla, *words: str) -> None:
    rla("make-tasks", "--run", "r")
    rla("init-model", "--run", "r")
    rla("rollout", "--run", "r", *words)
    rla("score-steps", "--run", "r", *words)


@pytest.fixture(params=[1, 2, 4])
def engines(request: pytest.FixtureRequest, nodes: Nodes) -> Iterator[int]:
    """So many engines, on as many nodes."""
    more = max(0, request.param - 3)
    for _ in range(more):
        nodes.add()
    yield request.param
    for _ in range(more):
        nodes.kill_one()


def test_shards_of_scripted_engines_are_a_plain_call_s_byte_by_byte(
    rla: Rla, tmp_path: Path, nodes: Nodes, ray: Any, engines: int
) -> None:
    begun(rla)
    rla("evaluate", "--run", "r", "--iteration", "0")
    options = on_ray(nodes, "scripted", f"own.replicas={engines}")
    for stage, name in (("rollout", "trajectories"), ("score-steps", "scores")):
        rla(stage, "--run", "r", "--out", name, *options)
        assert contents(tmp_path / name) == contents(tmp_path / "r/1" / name)
    rla("evaluate", "--run", "r", "--iteration", "0", "--out", "eval", "--metrics", "m.json", *options)
    assert contents(tmp_path / "eval") == contents(tmp_path / "r/eval/0/trajectories")
    states = engine_states(ray, known_engines(ray))
    assert len(states) == engines and all(state and state["answered"] for state in states.values())
    assert len({state["node"] for state in states.values() if state}) == engines


def test_shards_of_a_real_model_say_what_a_plain_call_says(rla: Rla, tmp_path: Path, nodes: Nodes) -> None:
    own = ("--set", "generator.backend=transformers", "--set", "generator.max_sequences=8")
    begun(rla, *own)
    options = on_ray(nodes, "transformers", "max_sequences=8")
    for stage, name in (("rollout", "trajectories"), ("score-steps", "scores")):
        rla(stage, "--run", "r", "--out", name, *options)
        whole, spread = (read_rows(folder, name) for folder in (tmp_path / "r/1" / name, tmp_path / name))
        assert len(whole) > 15 and spread == close(whole)


def started(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rla", *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def slow_rollout(tmp_path: Path, nodes: Nodes) -> subprocess.Popen[str]:
    """One episode after another, so that there is time to kill."""
    words = ("rollout", "--run", "r", "--out", "again", "--set", "rollout.concurrency=2")
    process = started(tmp_path, *words, *on_ray(nodes, "transformers", "max_sequences=8", "own.patience=60"))
    until(lambda: any((tmp_path / "again").glob("part-*.parquet")) or process.poll() is not None, seconds=DEADLINE)
    assert process.poll() is None, process.stderr and process.stderr.read()
    return process


def ended(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors


def test_what_a_killed_engine_and_a_killed_node_had_is_asked_of_the_others(
    rla: Rla, tmp_path: Path, nodes: Nodes, ray: Any
) -> None:
    begun(rla, "--set", "generator.backend=transformers", "--set", "generator.max_sequences=8")
    whole = close(read_rows(tmp_path / "r/1/trajectories", "trajectories"))
    process = slow_rollout(tmp_path, nodes)
    state = next(iter(engine_states(ray, known_engines(ray)).values()))
    assert state is not None
    os.kill(state["process"], signal.SIGKILL)
    ended(process)
    assert read_rows(tmp_path / "again", "trajectories") == whole

    (tmp_path / "again").rename(tmp_path / "first")
    process = slow_rollout(tmp_path, nodes)
    nodes.kill_one()
    try:
        ended(process)
    finally:
        nodes.add()
    assert read_rows(tmp_path / "again", "trajectories") == whole


def test_a_killed_stage_gives_its_engines_back(rla: Rla, tmp_path: Path, nodes: Nodes, ray: Any) -> None:
    begun(rla, "--set", "generator.backend=transformers", "--set", "generator.max_sequences=8")
    process = slow_rollout(tmp_path, nodes)
    process.kill()
    process.wait()
    rla("score-steps", "--run", "r", "--out", "scores", *on_ray(nodes, "transformers", "max_sequences=8"))
    # An engine notices in its own time that a stage has gone.
    until(
        lambda: all(state and not state["stages"] for state in engine_states(ray, known_engines(ray)).values()),
        seconds=60,
    )


def test_training_finds_the_engines_asleep(rla: Rla, tmp_path: Path, nodes: Nodes, ray: Any) -> None:
    options = on_ray(nodes, "transformers", "max_sequences=8", "own.replicas=1")
    begun(rla, *options)
    rla("validate-tasks", "--run", "r")
    rla("compute-rewards", "--run", "r")
    rla("train-policy", "--run", "r", *options)
    (state,) = engine_states(ray, known_engines(ray)).values()
    assert state and state["asleep"]
    rla("evaluate", "--run", "r", "--iteration", "1", *options)
    (state,) = engine_states(ray, known_engines(ray)).values()
    assert state and not state["asleep"] and state["answered"]


def test_engines_are_listed_warmed_up_and_stopped(rla: Rla, nodes: Nodes, ray: Any) -> None:
    rla("make-tasks", "--run", "r")
    rla("init-model", "--run", "r")
    options = ["--params", "params.yaml", *on_ray(nodes, "transformers", "own.replicas=2")]
    said = rla("engines", "start", "--model", "r/init/policy", *options).stdout
    assert said.count("process ") == 2
    assert rla("engines", "list", "--address", nodes.address).stdout == said
    assert rla("engines", "stop", "--address", nodes.address).stdout.count("ended") == 2
    assert "no engine runs" in rla("engines", "list", "--address", nodes.address).stdout


def test_a_cluster_that_does_not_answer_is_one_clear_error(rla: Rla) -> None:
    rla("make-tasks", "--run", "r")
    rla("init-model", "--run", "r")
    nowhere = ("--set", "generator.backend=ray", "--set", "generator.own.address=127.0.0.1:9")
    done = rla("rollout", "--run", "r", *nowhere, check=False)
    assert done.returncode == 2 and "no Ray cluster answers" in done.stderr and "Traceback" not in done.stderr
