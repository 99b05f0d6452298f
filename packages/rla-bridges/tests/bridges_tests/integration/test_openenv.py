"""Our environments as OpenEnv servers, and an OpenEnv server as our environment: both ends are our own here.

`test_openenv_package.py` has the protocol's own package at the other end.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rla_bridges.adapters.openenv import OpenEnv
from rla_bridges.adapters.openenv_service import OpenEnvService
from rla_programs.coding.data.problems import problem_of

from bridges_tests.integration.openenv_serving import Serving, serving_env
from rla.config import Config
from rla.envs.alfworld.environment import Alfworld
from rla.envs.observation import AwaitedEnvironment, Observation
from rla.envs.registry import environment, load_config
from rla.errors import UserError
from rla.store.reading import read_rows, read_tasks
from rla.store.records import Task
from tests.integration.conftest import Rla

FEW = (
    "tasks.train_scenes=4",
    "tasks.test_scenes=2",
    "tasks.tasks_per_scene=2",
    "env.max_steps=60",
    "env.omit_commands=[]",
)
SETS = [part for key in FEW for part in ("--set", key)]
TINY = """
seed: 5
env: {name: openenv, max_steps: 3, own: {select: listed}}
tasks: {train_scenes: 2, test_scenes: 1, tasks_per_scene: 1}
model: {hidden_size: 32, layers: 1, heads: 2, intermediate_size: 32, context: 2048}
launch: {threads: 1}
generator: {backend: transformers, context: 2048}
policy: {reply: text, history: full, decoding: admissible, max_tokens: 48, temperature: 1.0}
judge: {prompt: plain, decoding: admissible, max_tokens: 16, temperature: 1.0}
rollout: {tasks_per_iteration: 2, rollouts_per_task: 2}
credit: {reward_model_band: [0.0, 1.0], policy_band: [-1, 2]}
train_policy: {lr: 1.0e-3, updates: 1}
train_rm: {lr: 1.0e-3, updates: 1}
warm_start: {enabled: false}
adaptation: {enabled: false}
evaluation: {rollouts_per_task: 1, max_steps: 3}
"""
STAGES = ("rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm")


@pytest.fixture(scope="module")
def alfworld(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server for all tests that only play on it."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "served.yaml").write_text("env: {name: alfworld}\n")
    with serving_env(folder, "--env", "alfworld", *SETS, "--params", "served.yaml") as server:
        yield server


def client_config(url: str, *overrides: str) -> Config:
    own = [f"env.own.id={url}", "env.own.select=listed", "env.own.timeout=30"]
    return load_config(None, ["env.name=openenv", *own, *FEW, *overrides])


def own_tasks(name: str, *overrides: str, split: str = "train") -> dict[str, Task]:
    config = load_config(None, [f"env.name={name}", *FEW, *overrides])
    return {task.task_id: task for task in environment(name).tasks(config, split=split, seed=config.seed)}


def id_of(task: Task) -> str:
    """The id that the server knows a task by."""
    return str(json.loads(task.payload)["reset"]["task_id"])


def each_played(config: Config, play: Callable[[AwaitedEnvironment, Task], Awaitable[Any]]) -> list[Any]:
    """What `play` makes of an episode of each training task, all at once."""
    tasks = OpenEnv().tasks(config, split="train", seed=config.seed)

    async def one(service: OpenEnvService, task: Task) -> Any:
        episode = service.make(task)
        try:
            return await play(episode, task)
        finally:
            episode.close()

    async def run() -> list[Any]:
        service = OpenEnv().service(config)
        try:
            return await asyncio.gather(*(one(service, task) for task in tasks))
        finally:
            await service.close()

    return asyncio.run(run())


async def walked(episode: AwaitedEnvironment, actions: list[str]) -> list[Observation]:
    return [await episode.reset(), *[await episode.step(action) for action in actions]]


def seen_of(observations: list[Observation]) -> list[Any]:
    """What both ends must agree on: all but the reward, which the environment itself does not count."""
    return [(seen.text, seen.commands, seen.won, seen.done or seen.won) for seen in observations]


def solution(task: Task, config: Config) -> list[str]:
    return Alfworld().demonstrate(task, config, seed=0, random_share=0.0).actions


def blunders(task: Task, config: Config) -> list[str]:
    rng = random.Random(task.task_id)
    return [rng.choice(["look", "go to moon", "", "go to countertop 1", "\ud800", "x" * 5000]) for _ in range(20)]


@pytest.mark.parametrize("actions_of", [solution, blunders])
def test_served_episodes_are_those_of_the_environment_itself(
    alfworld: Serving, actions_of: Callable[[Task, Config], list[str]]
) -> None:
    config, own = load_config(None, ["env.name=alfworld", *FEW]), own_tasks("alfworld")

    async def play(episode: AwaitedEnvironment, task: Task) -> tuple[list[Observation], list[Observation]]:
        known = own[id_of(task)]
        actions = actions_of(known, config)
        game = Alfworld().make(known, config)
        expected = [game.reset(), *[game.step(action.encode("utf-8", "replace").decode()) for action in actions]]
        return expected, await walked(episode, actions)

    both = each_played(client_config(alfworld.url), play)
    assert len(both) == len(own) == 8
    for expected, got in both:
        assert seen_of(got) == seen_of(expected)
        assert [seen.success(1.0) for seen in got] == [seen.won for seen in expected]
    assert all(got[-1].won for _, got in both) == (actions_of is solution)


def test_a_whole_iteration_is_played_on_a_server(rla: Rla, tmp_path: Path, alfworld: Serving) -> None:
    (tmp_path / "params.yaml").write_text(TINY)
    options = ("--env", f"openenv:{alfworld.url}", "--run", "r")
    for stage in ("make-tasks", "init-model", "warm-start", "evaluate"):
        code, _, error = rla(stage, *options)
        assert code == 0, error
    for stage in STAGES:
        code, _, error = rla(stage, *options, "--iteration", "1")
        assert code == 0, error
    rows = read_rows(tmp_path / "r/1/trajectories", "trajectories")
    assert len(rows) == 4
    assert {row["stop_reason"] for row in rows} <= {"won", "max_steps"}
    assert all(step["action"] in step["commands"] for row in rows for step in row["steps"])
    assert {row["instruction"] for row in rows} <= {task.instruction for task in own_tasks("alfworld").values()}
    assert len(read_rows(tmp_path / "r/1/scores", "scores")) == sum(len(row["steps"]) for row in rows)
    assert all((tmp_path / "r/1" / name / "checkpoint.json").exists() for name in ("policy", "rm"))
    held_out = {task.task_id for task in read_tasks(tmp_path / "r/test/pool")}
    assert not held_out & {task.task_id for task in read_tasks(tmp_path / "r/0/pool")}


def test_a_served_sandbox_runs_programs(tmp_path: Path) -> None:
    overrides = ("env.own.execution.backend=rlimits", "tasks.train_scenes=4", "tasks.tasks_per_scene=1")
    own = own_tasks("coding", *overrides)

    async def play(episode: AwaitedEnvironment, task: Task) -> list[Observation]:
        solution = problem_of(own[id_of(task)].payload).solution
        right = await walked(episode, [solution or ""])
        return [right[-1], (await walked(episode, ["print('wrong')"]))[-1]]

    sets = [part for key in overrides for part in ("--set", key)]
    with serving_env(tmp_path, "--env", "coding", *sets) as server:
        for right, wrong in each_played(client_config(server.url, *overrides[1:]), play):
            assert (right.won, right.reward, right.done) == (True, 1.0, True)
            assert (wrong.won, wrong.reward, wrong.done) == (False, 0.0, True)


def test_environments_in_processes_of_their_own_are_served(tmp_path: Path) -> None:
    async def play(episode: AwaitedEnvironment, _: Task) -> int:
        return len(await walked(episode, ["look"] * 3))

    options = ("--env", "alfworld", *SETS, "--set", "pool.mode=always", "--sessions", "3")
    with serving_env(tmp_path, *options) as server:
        assert each_played(client_config(server.url), play) == [4] * 8  # of which three at a time
        assert server.ended(signal.SIGINT) == 0


def test_the_tasks_of_a_runs_pool_are_served(rla: Rla, tmp_path: Path) -> None:
    assert rla("make-tasks", "--run", "r")[0] == 0
    pool = read_tasks(tmp_path / "r/0/pool")
    with serving_env(tmp_path, "--pool", "r/0/pool") as server:
        assert server.lines[0].startswith(f"serving {len(pool)} tasks (train {len(pool)}) of alfworld at ")
        tasks = OpenEnv().tasks(client_config(server.url), split="train", seed=0)
    assert {id_of(task) for task in tasks} == {task.task_id for task in pool}
    assert {task.instruction for task in tasks} == {task.instruction for task in pool}


@pytest.mark.parametrize("select", ["seed", "listed"])
def test_the_contract_of_environments_is_kept(rla: Rla, alfworld: Serving, select: str) -> None:
    code, out, error = rla("envs", "--check", f"openenv:{alfworld.url}", "--set", f"env.own.select={select}")
    assert (code, error) == (0, ""), out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_while_an_episode_is_played(tmp_path: Path, number: signal.Signals) -> None:
    with serving_env(tmp_path, "--env", "alfworld", *SETS) as server:

        async def play(episode: AwaitedEnvironment, _: Task) -> bool:
            await episode.reset()
            return (await asyncio.to_thread(server.ended, number)) == 0

        one = ("tasks.train_scenes=1", "tasks.tasks_per_scene=1")
        assert each_played(client_config(server.url, *one), play) == [True]
        assert server.last == "stopped\n"


def test_a_token_is_needed_where_the_server_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving_env(tmp_path, "--env", "alfworld", *SETS, RLA_ENV_TOKEN="0123456789abcdef") as server:
        config = client_config(server.url)
        with pytest.raises(UserError, match="RLA_ENV_TOKEN"):
            OpenEnv().tasks(config, split="train", seed=0)
        monkeypatch.setenv("RLA_ENV_TOKEN", "0123456789abcdef")

        async def play(episode: AwaitedEnvironment, _: Task) -> str:
            return (await episode.reset()).text

        assert all(text.startswith("-=") for text in each_played(config, play))


def test_what_the_user_can_mend_is_said_in_a_line(rla: Rla, alfworld: Serving) -> None:
    code, _, error = rla("env", "serve", "--env", "alfworld", "--host", "0.0.0.0")
    assert (code, error.count("\n")) == (2, 1) and "RLA_ENV_TOKEN" in error
    port = alfworld.url.rpartition(":")[2]
    code, _, error = rla("env", "serve", "--env", "alfworld", *SETS, "--port", port)
    assert (code, error.count("\n")) == (2, 1) and "choose another port" in error
    code, _, error = rla("env", "serve", "--pool", "nowhere")
    assert code == 2 and "nowhere" in error
    code, _, error = rla("make-tasks", "--env", "openenv:http://127.0.0.1:9", "--run", "x")
    assert code == 2 and "start the OpenEnv server" in error
