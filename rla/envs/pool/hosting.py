"""Where the episodes of a stage step: on its machine, or where a launcher of another package has them (`pool.backend`).

On the machine of the process that asks for them, environments step in this process, in a pool of others (`pool.mode`),
or in a service of the environment's own (`Shares`), which has processes enough already.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from rla.config import Config, resolved
from rla.config.sections import PoolConfig
from rla.envs.observation import AwaitedEnvironment, Environment
from rla.envs.pool.fork_server import Recipe
from rla.envs.pool.pool import EnvironmentPool
from rla.envs.protocols import Measured, Pooled, Shares, Spreads
from rla.envs.registry import environment, from_mapping
from rla.errors import UserError
from rla.processes.workers import usable_cores
from rla.store.records import Task

MakeEnv = Callable[[Task], Environment | AwaitedEnvironment]


async def nothing() -> None:
    """There is nothing to do."""


def no_figures() -> Sequence[Mapping[str, float]]:
    """Nothing was measured."""
    return ()


@dataclass(frozen=True, slots=True)
class Environments:
    """`make` makes them; `close` is awaited by the event loop that they stepped in, when it is done with them.
    `figures`: what each process that they stepped in has measured so far (`rla.envs.protocols.Measured`). `prepared`
    returns as soon as one can be had; it raises UserError where none can.
    """

    make: MakeEnv
    close: Callable[[], Awaitable[None]] = nothing
    figures: Callable[[], Sequence[Mapping[str, float]]] = no_figures
    prepared: Callable[[], Awaitable[None]] = nothing


PER_CORE = 8  # environments alive: most wait for a reply. A TextWorld worker takes about 100 MB
BUSY_PER_CORE = 2  # environments that compute: one that hangs does not take a whole core's turn


@contextmanager
def own_environments(config: Config, *, note: Callable[[str], None]) -> Iterator[Environments]:
    """What makes environments; at the end the pool's processes are gone, and `note` says what it had to replace.

    Raises UserError.
    """
    chosen = environment(config.env.name)
    if isinstance(chosen, Shares):
        service = chosen.service(config)
        measured = [service] if isinstance(service, Measured) else []
        yield Environments(service.make, service.close, lambda: [found for one in measured if (found := one.figures())])
        return
    slow = isinstance(chosen, Pooled) and chosen.slow(config)
    if not pooled(config.pool, slow=slow):
        yield Environments(lambda task: chosen.make(task, config))
        return
    workers = config.pool.workers or PER_CORE * usable_cores()
    with EnvironmentPool(
        recipe_of(config),
        workers=min(workers, config.rollout.concurrency),
        busy=BUSY_PER_CORE * usable_cores(),
        deadline_s=config.pool.step_deadline_s,
    ) as pool:
        yield Environments(pool.environment, prepared=pool.prepared)
    if pool.replaced:
        note(f"{pool.replaced} worker processes of environments died or hung and were replaced")


def pooled(config: PoolConfig, *, slow: bool) -> bool:
    """Whether environments step in processes of their own."""
    return config.mode == "always" or (config.mode == "auto" and slow)


def recipe_of(config: Config) -> Recipe:
    """How the pool's processes make the environments of `config`."""
    return Recipe(target="rla.envs.pool.hosting:maker", argument=resolved(config))


def maker(argument: Mapping[str, Any]) -> Callable[[Task], Environment]:
    """What the pool's processes make environments with; `argument` is the whole config as JSON."""
    config = from_mapping(argument, where="the parameters of this stage")
    chosen = environment(config.env.name)
    if isinstance(chosen, Pooled):
        chosen.warm(config)

    def make(task: Task) -> Environment:
        made = chosen.make(task, config)
        if inspect.iscoroutinefunction(made.reset):
            raise UserError(
                f"env.name: {chosen.name} answers later, so it cannot step in the pool; set pool.mode: auto"
            )
        return made  # type: ignore[return-value]

    return make


class OwnPool(Protocol):
    """What a launcher's `Pool` is (`rla.config.load`); `config.pool.own` is an instance."""

    def environments(self, config: Config, *, note: Callable[[str], None]) -> AbstractContextManager[Environments]:
        """As `environments` below. It may be entered before an event loop runs, and is left after that has ended."""
        ...


@contextmanager
def environments(config: Config, *, note: Callable[[str], None]) -> Iterator[Environments]:
    """What makes environments; at the end their processes are gone, and `note` says which were replaced.

    Raises UserError.
    """
    elsewhere: OwnPool = config.pool.own
    make = elsewhere.environments if steps_on_cluster(config) else own_environments
    with make(config, note=note) as made:
        yield made


def steps_on_cluster(config: Config) -> bool:
    """Whether environments step elsewhere: slow ones, and services that may be on each machine."""
    if config.pool.own is None or config.pool.mode == "never":
        return False
    chosen = environment(config.env.name)
    if isinstance(chosen, Shares):
        return isinstance(chosen, Spreads) and chosen.spreads(config)
    return pooled(config.pool, slow=isinstance(chosen, Pooled) and chosen.slow(config))
