"""The second proof: the plan of a task is replayed to `won` in another engine, in processes of its own.

It costs seconds where the first engine costs milliseconds, so it comes last, for what has passed all else. An engine
that dies over a task refuses that task and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Literal

from rla.adaptation.propose import Replay
from rla.config import Config
from rla.config.sections import EnvConfig
from rla.envs.observation import AwaitedEnvironment, EnvironmentFailure
from rla.envs.pool import EnvironmentPool, Recipe
from rla.envs.protocols import Setting
from rla.errors import UserError
from rla.store.records import Task

WORKERS = 1  # proofs come one after the other
DEADLINE_S = 600.0  # at least: a machine that is busy is no reason to refuse a task, and what is refused is stored


def settled(config: Config, editor: Setting) -> Config:
    """`config` with `verify_engines: auto` replaced by what it stands for here: `fast` where no second engine is."""
    if config.adaptation.verify_engines != "auto":
        return config
    found: Literal["fast", "both"] = "fast" if editor.second_engine(config.env) is None else "both"
    return replace(config, adaptation=replace(config.adaptation, verify_engines=found))


def engines(config: Config, editor: Setting) -> list[str]:
    """The engines in which a task is proven. Raises UserError as `second_engine`."""
    second = second_engine(config, editor)
    return ["fast", *([second.engine] if second else [])]


def second_engine(config: Config, editor: Setting) -> EnvConfig | None:
    """The engine of the second proof; None where `adaptation.verify_engines` does without.

    Raises UserError where it is demanded and not installed.
    """
    wanted = config.adaptation.verify_engines
    found = None if wanted == "fast" else editor.second_engine(config.env)
    if wanted == "both" and found is None:
        raise UserError(
            "adaptation.verify_engines: both needs the stock engine; run pip install 'rla[alfworld]' or set it to auto"
        )
    return found


@contextmanager
def replays(config: Config, editor: Setting) -> Iterator[Replay | None]:
    """What replays tasks in the second engine; None where there is none. At the end its processes are gone."""
    second = second_engine(config, editor)
    if second is None:
        yield None
        return
    recipe = Recipe(target="rla.envs.hosting:maker", argument=asdict(second))
    deadline = max(config.pool.step_deadline_s, DEADLINE_S)
    with EnvironmentPool(recipe, workers=WORKERS, busy=WORKERS, deadline_s=deadline) as pool:

        async def replay(task: Task) -> str:
            environment = pool.environment(task)
            try:
                return await refusal(environment, editor.solution(task, second))
            finally:
                environment.close()

        yield replay


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
