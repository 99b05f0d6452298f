"""`launch.training: ray` and `pool.backend: ray`: training and environments on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rla.config.schema import LONGEST_WAIT, MOST_PROCESSES, ranged
from rla.config.sections import Config

if TYPE_CHECKING:
    from rla.envs.pool.hosting import Environments
    from rla.training.stage import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class RayTraining:
    """`launch.own`: the workers that train with `launch.training: ray`."""

    configuration: str = "pipelines/accelerate/ddp.yaml"  # of accelerate: how the workers share the model
    # how many; 0: one for every GPU of the cluster, one on each node where it has none
    workers: int = ranged(0, least=0, most=MOST_PROCESSES)
    fewest: int = ranged(1, least=1, most=MOST_PROCESSES)  # with which training goes on after a loss
    cpus: int = ranged(1, least=1, most=MOST_PROCESSES)  # that Ray reserves for each worker
    gpus: int | Literal["auto"] = ranged("auto", least=0, most=1)  # of each worker; auto: 1 where the cluster has any
    restarts: int = ranged(3, least=0, most=1000)  # how often training starts again after a loss
    address: str = ""  # of the cluster's head; empty: that of generator.own if it has one, else auto
    patience: float = ranged(600.0, above=0.0, most=LONGEST_WAIT)  # seconds that workers are waited for

    def __post_init__(self) -> None:
        if self.workers and self.fewest > self.workers:
            raise ValueError(f"fewest is {self.fewest}; it must be at most launch.own.workers")

    def train(self, job: TrainingJob) -> None:
        """Train on the workers of the cluster (`rla_ray.training.on_ray`)."""
        from rla_ray.training.on_ray import train_on_ray

        train_on_ray(job)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPool:
    """`pool.own`: the actors that hold environments with `pool.backend: ray`."""

    actors: int = ranged(0, least=0, most=MOST_PROCESSES)  # how many; 0: as many as the cluster has cores for
    cpus: int = ranged(0, least=0, most=MOST_PROCESSES)  # cores that each actor takes; 0: all of its node
    address: str = ""  # of the cluster's head; empty: that of generator.own if it has one, else auto
    patience: float = ranged(600.0, above=0.0, most=LONGEST_WAIT)  # seconds that lost actors are waited for

    def environments(self, config: Config, *, note: Callable[[str], None]) -> AbstractContextManager[Environments]:
        """Environments that step on the nodes of the cluster (`rla_ray.hosts.ray_hosts`)."""
        from rla_ray.hosts.ray_hosts import cluster_environments

        return cluster_environments(config, note=note)


class RayLauncher:
    """What the entry point `ray` of `rla.launchers` names."""

    Training = RayTraining
    Pool = RayPool
