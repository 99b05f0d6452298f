"""The pool against an environment that dies, hangs and raises: what an episode sees, and what is left running."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rla.envs.fork_server import _play, packed
from rla.envs.observation import EnvironmentFailure, Observation
from rla.envs.pool import EnvironmentPool, PooledEnvironment
from rla.errors import UserError
from tests.unit.builders import task
from tests.unit.envs.odd import Odd

DEADLINE = 1.0
ODD = "tests.unit.envs.odd:maker"


def in_pool(
    main: Callable[[EnvironmentPool], Awaitable[Any]], *, workers: int = 2, deadline: float = DEADLINE, **argument: bool
) -> Any:
    """What `main` gives; no process of the pool outlives it."""
    with EnvironmentPool(argument, target=ODD, workers=workers, busy=workers, deadline_s=deadline) as pool:
        fork_server = pool._server
        assert fork_server is not None

        async def timed() -> Any:
            async with asyncio.timeout(30):
                return await main(pool)

        found = asyncio.run(timed())
        running = [worker.pid for worker in pool._workers]
    assert fork_server.process.returncode is not None
    assert not any(alive(pid) for pid in running)
    return found


def alive(pid: int) -> bool:
    """Whether it runs, or did a moment ago: a killed process may take a little to go."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state in "ZX":
            return False
        time.sleep(0.02)
    return True


async def played(environment: PooledEnvironment, actions: list[str]) -> list[Observation]:
    """Every answer of an episode."""
    try:
        return [await environment.reset()] + [await environment.step(action) for action in actions]
    finally:
        environment.close()


def inline(folder: Path, actions: list[str]) -> list[Observation]:
    environment = Odd(folder)
    return [environment.reset()] + [environment.step(action) for action in actions]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


def test_a_worker_answers_as_the_environment_itself(place: Path) -> None:
    actions = ["north", 'say "ä\n\ud83d"', ""]
    found = in_pool(lambda pool: played(pool.environment(task(payload=str(place))), actions))
    assert found == inline(place, actions)


def test_more_episodes_than_workers_wait_for_a_place_and_the_imports_are_paid_once(place: Path) -> None:
    async def main(pool: EnvironmentPool) -> list[list[Observation]]:
        episodes = [played(pool.environment(task(payload=str(place))), ["north", "who"]) for _ in range(7)]
        return list(await asyncio.gather(*episodes))

    answers = [episode[-1].text.split("|") for episode in in_pool(main, workers=2)]
    assert {answer[0] for answer in answers} == {"north who"}
    workers, importers = {answer[1] for answer in answers}, {answer[2] for answer in answers}
    assert len(workers) == 7  # a process for each episode
    assert len(importers) == 1 and importers.isdisjoint(workers | {str(os.getpid())})


@pytest.mark.parametrize("fault", ["die", "hang"])
def test_an_episode_goes_on_when_its_worker_is_lost(fault: str, place: Path) -> None:
    async def main(pool: EnvironmentPool) -> tuple[list[Observation], int]:
        seen = await played(pool.environment(task(payload=str(place))), ["north", f"{fault}-once", "south"])
        return seen, pool.replaced

    found, replaced = in_pool(main)
    assert (replaced, (place / fault).exists()) == (1, True)
    assert found == inline(place, ["north", f"{fault}-once", "south"])


@pytest.mark.parametrize(("fault", "said"), [("die", "died"), ("hang", "did not answer within 0.3 s")])
def test_a_step_that_loses_two_workers_ends_its_episode_and_no_other(fault: str, said: str, place: Path) -> None:
    async def main(pool: EnvironmentPool) -> None:
        with pytest.raises(EnvironmentFailure, match=f"the environment {said} twice at action '{fault}'"):
            await played(pool.environment(task(payload=str(place))), ["north", fault])
        assert len(await played(pool.environment(task(payload=str(place))), ["north"])) == 2

    in_pool(main, workers=1, deadline=0.3)


def test_a_hanging_environment_does_not_hold_up_others(place: Path) -> None:
    async def main(pool: EnvironmentPool) -> bool:
        hanging = asyncio.create_task(played(pool.environment(task(payload=str(place))), ["hang-once"]))
        while not (place / "hang").exists():
            await asyncio.sleep(0.01)
        for _ in range(20):
            await played(pool.environment(task(payload=str(place))), ["north"] * 5)
        others_first = not hanging.done()
        await hanging
        return others_first

    assert in_pool(main, deadline=2.0)


@pytest.mark.parametrize(
    ("fault", "said"), [("raise", "raised RuntimeError: a wall fell over"), ("fail", "^the corridor collapsed$")]
)
def test_what_an_environment_raises_ends_its_episode_at_once(fault: str, said: str, place: Path) -> None:
    async def main(pool: EnvironmentPool) -> int:
        with pytest.raises(EnvironmentFailure, match=said):
            await played(pool.environment(task(payload=str(place))), [fault])
        assert len(await played(pool.environment(task(payload=str(place))), ["north"])) == 2
        return pool.replaced

    assert in_pool(main, workers=1) == 0


def test_an_episode_that_plays_differently_the_second_time_ends(place: Path) -> None:
    """`who` tells the process, which is another one after a death."""

    async def main(pool: EnvironmentPool) -> None:
        with pytest.raises(EnvironmentFailure, match="played again, answer 2 of the environment is another one"):
            await played(pool.environment(task(payload=str(place))), ["north", "who", "die-once"])

    in_pool(main)


def test_a_fork_server_that_was_killed_between_episodes_is_replaced(place: Path) -> None:
    async def main(pool: EnvironmentPool) -> int:
        for _ in range(2):
            assert len(await played(pool.environment(task(payload=str(place))), ["north"])) == 2
            assert pool._server is not None
            pool._server.process.kill()
            pool._server.process.wait()
        return pool.replaced

    assert in_pool(main, workers=1) == 0


def test_a_fork_server_that_is_killed_under_an_episode_is_replaced(place: Path) -> None:
    async def main(pool: EnvironmentPool) -> list[Observation]:
        environment = pool.environment(task(payload=str(place)))
        seen = [await environment.reset(), await environment.step("north")]
        assert pool._server is not None
        pool._server.process.kill()
        return [*seen, await environment.step("south")]

    assert in_pool(main) == inline(place, ["north", "south"])


def test_a_cancelled_episode_gives_its_place_back_and_its_worker_up(place: Path) -> None:
    async def main(pool: EnvironmentPool) -> int:
        hanging = asyncio.create_task(played(pool.environment(task(payload=str(place))), ["hang"]))
        while not (place / "hang").exists():
            await asyncio.sleep(0.01)
        (worker,) = pool._workers
        hanging.cancel()
        await asyncio.wait([hanging])
        assert len(await played(pool.environment(task(payload=str(place))), ["north"])) == 2
        return worker.pid

    assert not alive(in_pool(main, workers=1, deadline=60))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("missing", "the odd package is not installed"),
        ("torch", "imports torch, which no fork can use; set pool.mode: never"),
        ("die", "no worker process for the environment could be started"),
        ("disconnected", "no worker process for the environment could be started"),
    ],
)
def test_an_environment_that_cannot_be_had_stops_the_stage_with_its_reason(fault: str, said: str, place: Path) -> None:
    async def main(pool: EnvironmentPool) -> None:
        with pytest.raises(UserError, match=said):
            await played(pool.environment(task(payload=str(place))), ["north"])

    in_pool(main, **{fault: True})


STAGE = f"""
import asyncio, signal, sys
from rla.envs.pool import EnvironmentPool
from tests.unit.builders import task

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes are made to ignore it

async def main(pool):
    busy, idle = pool.environment(task(payload=sys.argv[1])), pool.environment(task(payload=sys.argv[1]))
    await busy.reset(), await idle.reset()
    print(pool._server.process.pid, *(worker.pid for worker in pool._workers), flush=True)
    await busy.step("hang")

with EnvironmentPool({{}}, target="{ODD}", workers=2, busy=2, deadline_s=600) as pool:
    asyncio.run(main(pool))
"""


def test_a_worker_whose_stage_ended_before_its_answer_says_nothing(place: Path, capfd: pytest.CaptureFixture) -> None:
    ours, theirs = socket.socketpair()
    ended: list[int] = []

    class Late(Odd):
        def reset(self) -> Observation:
            ours.close()
            return super().reset()

        def close(self) -> None:
            ended.append(os.getpid())

    ours.sendall(packed({"reset": task(payload=str(place)).row()}))
    _play(lambda task: Late(place), theirs)
    assert ended == [os.getpid()]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("ready", [False, True])
def test_a_fork_server_whose_stage_has_ended_says_nothing(ready: bool, capfd: pytest.CaptureFixture) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "rla.envs.fork_server", str(theirs.fileno()), str(os.getpid())]
        server = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    ours.sendall(packed({"sys_path": sys.path, "target": ODD, "argument": {}}))
    if ready:  # and not read
        assert ours.recv(1, socket.MSG_PEEK)
    ours.close()
    assert server.wait(60) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_stage_even_one_that_hangs(number: signal.Signals, place: Path) -> None:
    top = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", STAGE, str(place)], cwd=top, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as stage:
        assert stage.stdout is not None
        try:
            pids = [int(pid) for pid in stage.stdout.readline().split()]
            while not (place / "hang").exists():
                time.sleep(0.01)
            assert len(pids) == 3 and all(Path(f"/proc/{pid}").exists() for pid in pids)
            stage.send_signal(number)
            stage.wait(10)
        finally:
            stage.kill()
    assert not any(alive(pid) for pid in pids)
