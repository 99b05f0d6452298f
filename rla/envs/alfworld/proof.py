"""The second proof: the plan of a task is replayed to `won` in the stock engine, in a process of its own.

It costs seconds where the fast engine costs milliseconds, so it comes last, for what has passed all else. An engine
that dies over a task refuses that task and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec

from rla.config import Config
from rla.envs.alfworld.games import household_params, tables_for
from rla.envs.alfworld.solver import solve
from rla.envs.observation import AwaitedEnvironment, EnvironmentFailure
from rla.envs.pool.own import recipe_of
from rla.envs.pool.pool import EnvironmentPool
from rla.errors import UserError
from rla.store.records import Task

WORKERS = 1  # proofs come one after the other
DEADLINE_S = 600.0  # at least: a machine that is busy is no reason to refuse a task, and what is refused is stored
ALONE = (
    "no second engine is installed, so tasks are proven in the fast engine alone; run pip install 'rla[alfworld]' for "
    "both"
)


def stock_installed() -> bool:
    """Whether the `alfworld` extra is installed."""
    return all(find_spec(name) is not None for name in ("alfworld", "textworld"))


def solution(task: Task, config: Config) -> list[str]:
    """Commands that win the task; none where there is no way."""
    return list(solve(tables_for(task, config)) or ())


class EngineProof:
    """`rla.envs.services.Proof`: by the fast engine alone, or in the stock engine as well.

    Raises UserError where `env.own.verify_engines: both` asks for an engine that is not installed.
    """

    def __init__(self, config: Config, plan_of: Callable[[Task, Config], list[str]] = solution) -> None:
        wanted, found = household_params(config).verify_engines, stock_installed()
        if wanted == "both" and not found:
            raise UserError(
                "env.own.verify_engines: both needs the stock engine; run pip install 'rla[alfworld]' or set it to auto"
            )
        self._second = found and wanted != "fast"
        self.proven_in: tuple[str, ...] = ("fast", "textworld") if self._second else ("fast",)
        self.remark = ALONE if wanted == "auto" and not found else ""
        self._plan_of = plan_of
        own = replace(household_params(config), engine="textworld")
        self._config = replace(config, env=replace(config.env, own=own))
        self._stack = ExitStack()
        self._pool: EnvironmentPool | None = None

    async def __call__(self, task: Task) -> str:
        """Why the stock engine refuses the task; empty where it does not, or is not asked."""
        if not self._second:
            return ""
        if self._pool is None:
            deadline = max(self._config.pool.step_deadline_s, DEADLINE_S)
            pool = EnvironmentPool(recipe_of(self._config), workers=WORKERS, busy=WORKERS, deadline_s=deadline)
            self._pool = self._stack.enter_context(pool)
        environment = self._pool.environment(task)
        try:
            return await refusal(environment, self._plan_of(task, self._config))
        finally:
            environment.close()

    async def close(self) -> None:
        """No process is left."""
        self._stack.close()


async def refusal(environment: AwaitedEnvironment, plan: list[str]) -> str:
    """Why the plan does not win there, and not before its last command; empty where it does."""
    try:
        seen = await environment.reset()
        if seen.won:
            return "the stock engine: the goal is already true at the start"
        for number, command in enumerate(plan, 1):
            if command not in seen.commands:
                return f"the stock engine: step {number} of the plan is not admissible"
            seen = await environment.step(command)
            if seen.won != (number == len(plan)):
                return f"the stock engine: the plan {'wins early' if seen.won else 'does not win'}"
    except EnvironmentFailure as failure:
        return f"the stock engine: {failure}"
    return ""
