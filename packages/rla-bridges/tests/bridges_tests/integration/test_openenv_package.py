"""The protocol's own package at the other end: its client plays our server, and our client plays its servers.

`openenv` 0.10 cannot be installed beside vLLM (it needs mcp<2), so it has a virtual environment of its own: the one
that OPENENV_PYTHON names, as in `make -f tests/bench/Makefile test-openenv`, or one that is made here with uv.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridges_tests.integration.openenv_serving import serving_env
from bridges_tests.integration.test_openenv import FEW, SETS, each_played, own_tasks
from rla.envs.alfworld.environment import Alfworld
from rla.envs.observation import AwaitedEnvironment, EnvironmentFailure
from rla.envs.registry import load_config
from rla.store.records import Task

pytestmark = pytest.mark.slow
THEIRS = Path(__file__).with_name("openenv_theirs.py")
PINNED = Path(__file__).with_name("openenv_package.txt")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has the package."""
    given = os.environ.get("OPENENV_PYTHON")
    if given:
        return given
    folder = tmp_path_factory.mktemp("openenv") / "venv"
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("there is no uv beside this interpreter to make the package's environment with")
    python = str(folder / "bin" / "python")
    for command in (
        ["venv", "--quiet", "--python", sys.executable, str(folder)],
        ["pip", "install", "--quiet", "--python", python, "-r", str(PINNED)],
    ):
        done = subprocess.run([str(uv), *command], capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            pytest.skip(f"openenv cannot be installed here: {done.stderr[-300:]}")
    return python


@pytest.fixture(scope="module")
def ports(theirs: str) -> Iterator[dict[str, int]]:
    """Servers made with the package, by name."""
    process = subprocess.Popen([theirs, str(THEIRS), "serve"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_their_client_plays_our_server(theirs: str, tmp_path: Path) -> None:
    alfworld, own = load_config(None, ["env.name=alfworld", *FEW]), own_tasks("alfworld")
    solutions = {
        name: Alfworld().demonstrate(task, alfworld, seed=0, random_share=0.0).actions for name, task in own.items()
    }
    with serving_env(tmp_path, "--env", "alfworld", *SETS, "--sessions", "2") as server:
        done = subprocess.run(
            [theirs, str(THEIRS), "play", server.url],
            input=json.dumps(solutions),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    played = json.loads(done.stdout.splitlines()[-1])
    for name, actions in solutions.items():
        game = Alfworld().make(own[name], alfworld)
        expected = [game.reset(), *map(game.step, actions)]
        episode = played["episodes"][name]
        assert [[text, commands] for text, commands, _, _ in episode] == [[e.text, list(e.commands)] for e in expected]
        assert [reward for _, _, reward, _ in episode] == [None, *[0.0] * (len(actions) - 1), 1.0]
        assert [done for _, _, _, done in episode] == [False] * len(actions) + [True]
    last = list(solutions)[-1]
    assert (played["state"]["task_id"], played["state"]["return"]) == (last, 1.0)
    assert played["errors"] == [
        "Server error: the episode is over; send a reset (code: EXECUTION_ERROR)",
        'Server error: a step is {"action": "..."}, a text (code: VALIDATION_ERROR)',
    ]
    ids = sorted(own)
    assert played["by_seed"] == [ids[0], ids[1], ids[0]]
    assert played["at_once"] == ids[:2]


def played_there(
    port: int, play: Callable[[AwaitedEnvironment, Task], Awaitable[Any]], *overrides: str, tasks: int = 12
) -> list[Any]:
    own = [f"env.own.id=http://127.0.0.1:{port}", "env.own.timeout=30", *overrides]
    counts = [f"tasks.train_scenes={tasks}", "tasks.tasks_per_scene=1"]
    return each_played(load_config(None, ["env.name=openenv", *own, *counts]), play)


def seed_of(task: Task) -> int:
    return int(json.loads(task.payload)["reset"]["seed"])


def test_our_client_wins_on_their_server_which_has_fewer_sessions_than_episodes(ports: dict[str, int]) -> None:
    async def play(episode: AwaitedEnvironment, task: Task) -> Any:
        rng = random.Random(seed_of(task))
        row, column = rng.randrange(3), rng.randrange(3)
        first = await episode.reset()
        assert first.text == '{"message": "Dig.", "tries": 0}\n\nActions are written as: row=<integer> column=<integer>'
        wrong = await episode.step(f"row={row} column={(column + 1) % 3}")
        unread = await episode.step("somewhere")
        beyond = await episode.step('{"row": 7, "column": 0}')
        right = await episode.step(f"{row} {column}")
        assert task.instruction == "Find the treasure."
        return wrong.text, wrong.reward, unread.text[:26], beyond.text, right.text, right.reward, right.done

    for wrong, after, unread, beyond, right, reward, done in played_there(ports["dig"], play):
        assert wrong == '{"message": "column", "tries": 1}'
        assert unread == "That is not an action: row"
        assert beyond == "That action was refused: Invalid message."
        assert right == '{"message": "You found it.", "tries": 2}'
        assert (after, reward, done) == (pytest.approx(-0.1), pytest.approx(1.4), True)


def test_an_exception_in_their_environment_ends_the_episode(ports: dict[str, int]) -> None:
    async def play(episode: AwaitedEnvironment, _: Task) -> str:
        await episode.reset()
        with pytest.raises(EnvironmentFailure) as failure:
            await episode.step("3 3")
        return str(failure.value)

    assert played_there(ports["dig"], play) == ["EXECUTION_ERROR: the ground gives way"] * 12


def test_our_client_speaks_to_a_server_of_a_single_session_and_takes_its_time(ports: dict[str, int]) -> None:
    async def play(episode: AwaitedEnvironment, task: Task) -> Any:
        texts = [(await episode.reset()).text]
        await asyncio.sleep(1.2)  # more than the server waits for the answer to a ping
        last = await episode.step('{"message": "as it is"}')
        return [*texts, last.text, last.reward, seed_of(task)]

    for first, last, reward, seed in played_there(ports["say"], play, tasks=3):
        assert (first, last) == (f"seed {seed}", '{"message": "as it is"}')
        assert reward == pytest.approx(2.3)


def test_our_client_calls_their_tools(ports: dict[str, int]) -> None:
    async def play(episode: AwaitedEnvironment, _: Task) -> list[str]:
        texts = [(await episode.reset()).text]
        for action in ("add 40 2", "add a=40 b=2", "add 41", "add x", "subtract 1"):
            texts.append((await episode.step(action)).text)
        return texts

    for texts in played_there(ports["tools"], play, tasks=2):
        assert texts[0] == "Tools:\nadd a=<integer> [b=<integer>] (Add two numbers.)"
        assert texts[1:4] == ["That is not an action: a must be integer, not '40 2'.", "42", "42"]
        assert texts[4] == "That is not an action: a must be integer, not 'x'."
        assert texts[5] == "That is not an action: there is no tool 'subtract'; there are add."
