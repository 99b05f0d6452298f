"""Where the environments of a stage run: on its machine, or wherever a cluster backend places them (`pool.backend`).

On its own machine they run in the process of the stage, in a pool of worker processes (`pool.mode`), or in a service of
the environment (`Shares`), which manages its own processes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from rla.config import Config, resolved
from rla.envs.observation import AwaitedEnvironment, Environment
from rla.envs.pool.fork_server import Recipe
from rla.envs.pool.pool import EnvironmentPool
from rla.envs.protocols import Measured, Pooled, Shares, Spreads
from rla.envs.registry import environment, from_mapping
from rla.errors import UserError
from rla.processes import usable_cores
from rla.store.records import Task

MakeEnv = Callable[[Task], Environment | AwaitedEnvironment]

PER_CORE = 8  # live environments: most wait for a reply. A TextWorld worker takes about 100 MB
BUSY_PER_CORE = 2  # computing environments: one that hangs does not block a whole core


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Environments:
    """The source of a stage's environments.

    `make` creates one; `close` is awaited at the end by the event loop in which they stepped. `figures`: the
    measurements of each process in which they stepped (`rla.envs.protocols.Measured`). `prepared` returns once the
    first one is available, and raises UserError if none ever will be.
    """

    make: MakeEnv
    close: Callable[[], Awaitable[None]] = _nothing
    figures: Callable[[], Sequence[Mapping[str, float]]] = tuple
    prepared: Callable[[], Awaitable[None]] = _nothing


class PoolBackend(Protocol):
    """The `Pool` of a cluster backend (`rla.config.load`); `config.pool.own` is an instance."""

    def environments(self, config: Config, *, note: Callable[[str], None]) -> AbstractContextManager[Environments]:
        """Like `environments` below. Entered before an event loop runs, and left after it has ended."""
        ...


@contextmanager
def environments(config: Config, *, note: Callable[[str], None]) -> Iterator[Environments]:
    """The environments of a stage. On exit their processes are gone, and `note` is told how many were replaced.

    Raises UserError.
    """
    backend: PoolBackend = config.pool.own
    make = backend.environments if steps_on_cluster(config) else own_environments
    with make(config, note=note) as made:
        yield made


@contextmanager
def own_environments(config: Config, *, note: Callable[[str], None]) -> Iterator[Environments]:
    """Like `environments`, but always on this machine."""
    chosen = environment(config.env.name)
    if isinstance(chosen, Shares):
        service = chosen.service(config)
        measured = [service] if isinstance(service, Measured) else []
        yield Environments(service.make, service.close, lambda: [found for one in measured if (found := one.figures())])
        return
    if not steps_in_pool(config):
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


def steps_in_pool(config: Config) -> bool:
    """Whether environments step in worker processes."""
    if config.pool.mode != "auto":
        return config.pool.mode == "always"
    chosen = environment(config.env.name)
    return isinstance(chosen, Pooled) and chosen.slow(config)


def steps_on_cluster(config: Config) -> bool:
    """Whether environments step on other machines: slow ones, and services that may run on each machine."""
    if config.pool.own is None or config.pool.mode == "never":
        return False
    chosen = environment(config.env.name)
    if isinstance(chosen, Shares):
        return isinstance(chosen, Spreads) and chosen.spreads(config)
    return steps_in_pool(config)


def recipe_of(config: Config) -> Recipe:
    """How workers create the environments of `config`."""
    return Recipe(target="rla.envs.pool.hosting:maker", argument=resolved(config))


def maker(argument: Mapping[str, Any]) -> Callable[[Task], Environment]:
    """Called in the fork server; `argument` is the whole config as JSON."""
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
