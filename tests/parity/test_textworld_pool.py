"""TextWorld in worker processes answers as it does here, also when its worker is killed in mid-episode."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from importlib.util import find_spec

import pytest

from rla.config import resolved
from rla.config.sections import TasksConfig
from rla.envs.alfworld.environment import Alfworld
from rla.envs.alfworld.game import Game
from rla.envs.alfworld.tasks import builtin_tasks, task_from_game
from rla.envs.observation import Observation
from rla.envs.pool import EnvironmentPool, environments, steps_in_pool
from rla.store.records import Task
from tests.parity.alfworld_play import real_games
from tests.unit.builders import configured

STEPS = 4
CONFIG = configured("env.own.engine=textworld")

pytestmark = pytest.mark.skipif(find_spec("alfworld") is None, reason="needs the stock engine: the extra alfworld")


def games() -> list[Task]:
    """A built-in game, and a real one where they are at hand."""
    real = [task_from_game(Game.load(path), split="test", scene="real") for path in real_games(1)]
    return [*real, *builtin_tasks(TasksConfig(train_scenes=1, tasks_per_scene=1, size="tiny", kinds=("two",)), seed=3)]


def choice(number: int, seen: Observation) -> str:
    return seen.commands[(7 * number) % len(seen.commands)]


def inline(task: Task) -> list[Observation]:
    engine = Alfworld().make(task, CONFIG)
    seen = [engine.reset()]
    for number in range(STEPS):
        seen.append(engine.step(choice(number, seen[-1])))
    engine.close()
    return seen


async def disturbed(pool: EnvironmentPool, task: Task) -> list[Observation]:
    """The same episode; its worker is killed before the third step."""
    engine = pool.environment(task)
    seen = [await engine.reset()]
    for number in range(STEPS):
        if number == 2:
            assert engine.worker is not None
            os.kill(engine.worker.pid, signal.SIGKILL)
        seen.append(await engine.step(choice(number, seen[-1])))
    engine.close()
    return seen


def test_a_killed_worker_changes_no_observation() -> None:
    async def main(pool: EnvironmentPool) -> list[list[Observation]]:
        return list(await asyncio.gather(*(disturbed(pool, task) for task in tasks)))

    tasks = games()
    with EnvironmentPool(resolved(CONFIG), workers=2, busy=2, deadline_s=60) as pool:
        found = asyncio.run(main(pool))
    assert found == [inline(task) for task in tasks]
    assert pool.replaced == len(tasks)


def test_the_stock_engine_is_pooled_by_default_and_the_fast_one_is_not() -> None:
    assert steps_in_pool(CONFIG)
    assert not steps_in_pool(configured())
    assert not steps_in_pool(replace(CONFIG, pool=replace(CONFIG.pool, mode="never")))
    with environments(CONFIG, note=print) as made:
        assert asyncio.iscoroutinefunction(made.make(games()[0]).reset)
