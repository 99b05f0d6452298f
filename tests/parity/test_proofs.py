"""The second proof: what the fast engine has proven wins in the stock engine, and a plan that does not is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec

import pytest

from rla.envs.alfworld.engine import FastEngine, FastGame, tables_of
from rla.envs.alfworld.environment import Alfworld
from rla.envs.alfworld.game import game_of
from rla.envs.alfworld.solver import solve
from rla.envs.alfworld.tasks import builtin_tasks
from rla.envs.alfworld.textworld import EngineProof, StockEngine
from rla.store.records import Task
from tests.unit.builders import configured

CONFIG = configured("env.own.verify_engines=both")

pytestmark = pytest.mark.skipif(find_spec("alfworld") is None, reason="needs the stock engine: the extra alfworld")


Planner = Callable[[FastGame], list[str] | None]


def hasty(tables: FastGame) -> list[str]:
    """A plan that stops before the last command."""
    return (solve(tables) or [])[:-1]


def child() -> Task:
    parent = builtin_tasks(seed=3, scenes=1, tasks_per_scene=1, size="tiny", kinds=["place"])[0]
    edits = Alfworld().propose(parent, direction="harder", critique="", seed=0, count=1)
    return Alfworld().apply(parent, edits[0], root=parent, taken=(), created=1)


@pytest.mark.parametrize(("plan_of", "reason"), [(solve, ""), (hasty, "does not win")])
def test_a_changed_task_is_replayed_in_the_stock_engine(plan_of: Planner, reason: str) -> None:
    proof = EngineProof(CONFIG, plan_of)

    async def asked() -> str:
        try:
            return await proof(child())
        finally:
            await proof.close()

    assert proof.proven_in == ("fast", "textworld")
    found = asyncio.run(asked())
    assert reason in found and bool(found) is bool(reason)


def test_neither_engine_offers_what_a_task_withholds() -> None:
    """Along the plan of the task, with commands in between that it withholds."""
    parent = builtin_tasks(seed=3, scenes=1, tasks_per_scene=1, size="tiny", kinds=["place"])[0]
    held = Alfworld().apply(parent, '{"withhold": ["close", "look"]}', root=parent, taken=(), created=1)
    fast, stock = FastEngine(tables_of(held.payload)), StockEngine(game_of(held.payload))
    seen, told = fast.reset(), stock.reset()
    for command in ["look", *(action for step in solve(tables_of(held.payload)) or () for action in (step, "look"))]:
        assert (told.text, told.commands, told.won) == (seen.text, seen.commands, seen.won)
        assert not {"look", "close"} & {offered.partition(" ")[0] for offered in told.commands}
        if told.won:
            break
        seen, told = fast.step(command), stock.step(command)
    assert told.won
    stock.close()


def test_a_task_that_withholds_commands_is_proven_in_the_stock_engine() -> None:
    parent = builtin_tasks(seed=3, scenes=1, tasks_per_scene=1, size="tiny", kinds=["place"])[0]
    held = Alfworld().apply(parent, '{"withhold": ["close"]}', root=parent, taken=(), created=1)

    async def asked(plan_of: Planner) -> str:
        proof = EngineProof(CONFIG, plan_of)
        try:
            return await proof(held)
        finally:
            await proof.close()

    def using_it(tables: FastGame) -> list[str]:
        return ["close drawer 1", *(solve(tables) or ())]

    assert asyncio.run(asked(solve)) == ""
    assert "not admissible" in asyncio.run(asked(using_it))
