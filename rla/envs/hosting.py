"""Where the environments of a stage step: in its own process, in a pool of others (`pool.mode`), or in a service of the
setting's own, which has processes enough already.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from rla.config import Config
from rla.config.load import build
from rla.config.sections import EnvConfig, PoolConfig
from rla.envs.observation import AwaitedEnvironment, Environment
from rla.envs.registry import setting
from rla.store.records import Task

MakeEnv = Callable[[Task], Environment | AwaitedEnvironment]


async def nothing() -> None:
    """There is nothing to close."""


@dataclass(frozen=True, slots=True)
class Environments:
    """`make` makes them; `close` is awaited by the event loop that they stepped in, when it is done with them."""

    make: MakeEnv
    close: Callable[[], Awaitable[None]] = nothing


PER_CORE = 8  # environments alive: most wait for a reply. A TextWorld worker takes about 100 MB
BUSY_PER_CORE = 2  # environments that compute: one that hangs does not take a whole core's turn


@contextmanager
def environments(config: Config, *, note: Callable[[str], None]) -> Iterator[Environments]:
    """What makes environments; at the end the pool's processes are gone, and `note` says what it had to replace.

    Raises UserError.
    """
    chosen = setting(config.env.name)
    service = chosen.service(config.env)
    if service is not None:
        yield Environments(service.make, service.close)
        return
    if not pooled(config.pool, slow=chosen.slow(config.env)):
        yield Environments(lambda task: chosen.make(task, config.env))
        return
    from rla.envs.pool import EnvironmentPool, Recipe

    recipe = Recipe(target="rla.envs.hosting:maker", argument=asdict(config.env))
    workers = config.pool.workers or PER_CORE * cores()
    with EnvironmentPool(
        recipe,
        workers=min(workers, config.rollout.concurrency),
        busy=BUSY_PER_CORE * cores(),
        deadline_s=config.pool.step_deadline_s,
    ) as pool:
        yield Environments(pool.environment)
    if pool.replaced:
        note(f"{pool.replaced} worker processes of environments died or hung and were replaced")


def pooled(config: PoolConfig, *, slow: bool) -> bool:
    """Whether environments step in processes of their own."""
    return config.mode == "always" or (config.mode == "auto" and slow)


def cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def maker(argument: Mapping[str, Any]) -> Callable[[Task], Environment]:
    """What the pool's processes make environments with; `argument` is the section `env` as JSON."""
    config: EnvConfig = build(EnvConfig, argument, "env", "env.")
    chosen = setting(config.name)
    chosen.warm(config)
    return lambda task: chosen.make(task, config)
