"""The second proof: what the fast engine has proven wins in the stock engine, and a plan that does not is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec

import pytest

from rla.config import Config
from rla.envs.alfworld.environment import Alfworld
from rla.envs.alfworld.proof import EngineProof, solution
from rla.envs.alfworld.tasks import builtin_tasks
from rla.store.records import Task
from tests.unit.builders import configured

CONFIG = configured("env.own.verify_engines=both")

pytestmark = pytest.mark.skipif(
    find_spec("alfworld") is None, reason="needs the stock engine: pip install 'rla[alfworld]'"
)


def hasty(task: Task, config: Config) -> list[str]:
    """A plan that stops before the last command."""
    return solution(task, config)[:-1]


def child() -> Task:
    parent = builtin_tasks(seed=3, scenes=1, tasks_per_scene=1, size="tiny", kinds=["place"])[0]
    edits = Alfworld().propose(parent, direction="harder", critique="", seed=0, count=1)
    return Alfworld().apply(parent, edits[0], root=parent, taken=(), created=1)


@pytest.mark.parametrize(("plan_of", "reason"), [(solution, ""), (hasty, "does not win")])
def test_a_changed_task_is_replayed_in_the_stock_engine(
    plan_of: Callable[[Task, Config], list[str]], reason: str
) -> None:
    proof = EngineProof(CONFIG, plan_of)

    async def asked() -> str:
        try:
            return await proof(child())
        finally:
            await proof.close()

    assert proof.proven_in == ("fast", "textworld")
    found = asyncio.run(asked())
    assert reason in found and bool(found) is bool(reason)
