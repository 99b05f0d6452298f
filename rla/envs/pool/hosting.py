"""Where the episodes of a stage step: on its machine (`rla.envs.pool.own`), or in actors on the nodes of a Ray cluster
(`pool.backend: ray`), for environments whose steps take long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rla.config import Config
from rla.envs.pool.own import Environments, own_environments, pooled
from rla.envs.protocols import Pooled, Shares, Spreads
from rla.envs.registry import environment


@contextmanager
def environments(config: Config, *, note: Callable[[str], None]) -> Iterator[Environments]:
    """What makes environments; at the end their processes and actors are gone, and `note` says which were replaced.

    Raises UserError.
    """
    if not steps_on_cluster(config):
        with own_environments(config, note=note) as made:
            yield made
        return
    from rla.envs.pool.ray_hosts import cluster_hosts
    from rla.envs.pool.spreading import HostPool

    with HostPool(
        cluster_hosts(config),
        places=config.rollout.concurrency,
        deadline_s=config.pool.step_deadline_s,
        patience_s=config.generator.ray.patience,
    ) as pool:
        yield Environments(pool.environment, pool.close, lambda: pool.figures, pool.prepared)
    if pool.lost:
        note(f"{pool.lost} actors with environments were lost, and {pool.replaced} times an episode went on elsewhere")


def steps_on_cluster(config: Config) -> bool:
    """Whether environments step on the nodes of a cluster: slow ones, and services that may be on each node."""
    if config.pool.backend == "local" or config.pool.mode == "never":
        return False
    chosen = environment(config.env.name)
    if isinstance(chosen, Shares):
        return isinstance(chosen, Spreads) and chosen.spreads(config)
    return pooled(config.pool, slow=isinstance(chosen, Pooled) and chosen.slow(config))
