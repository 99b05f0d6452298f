"""Where the episodes of a stage step: on its machine (`rla.envs.pool.own`), or where a launcher of another package has
them (`pool.backend`), for environments whose steps take long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rla.config import Config
from rla.envs.pool.own import Environments, own_environments, pooled
from rla.envs.protocols import Pooled, Shares, Spreads
from rla.envs.registry import environment


class OwnPool(Protocol):
    """What a launcher's `Pool` is (`rla.config.backends`); `config.pool.own` is an instance."""

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
