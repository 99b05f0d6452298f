"""`launch.training: ray` and `pool.backend: ray`: training and environments on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rla.config.schema import LONGEST_WAIT, MOST_PROCESSES, ranged
from rla.config.sections import Config

if TYPE_CHECKING:
    from rla.envs.pool import Environments
    from rla.training.stage import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class RayTraining:
    """`launch.own`: the workers that train with `launch.training: ray`."""

    # file of accelerate, which says how the workers share the model
    configuration: str = "pipelines/accelerate/ddp.yaml"
    # number of workers; 0: one per GPU of the cluster, or one per node without GPUs
    workers: int = ranged(0, least=0, most=MOST_PROCESSES)
    fewest: int = ranged(1, least=1, most=MOST_PROCESSES)  # workers that training needs at least to go on after a loss
    cpus: int = ranged(1, least=1, most=MOST_PROCESSES)  # CPUs that Ray reserves for each worker
    gpus: int | Literal["auto"] = ranged("auto", least=0, most=1)  # GPUs of each worker; auto: 1 if the cluster has any
    restarts: int = ranged(3, least=0, most=1000)  # how often training starts again after a loss
    address: str = ""  # of the cluster's head; empty: the address in generator.own if it has one, else auto
    patience: float = ranged(600.0, above=0.0, most=LONGEST_WAIT)  # seconds to wait for workers to start

    def __post_init__(self) -> None:
        if self.workers and self.fewest > self.workers:
            raise ValueError(f"fewest is {self.fewest}; it must be at most launch.own.workers")

    def train(self, job: TrainingJob) -> None:
        """Train on the workers of the cluster (`rla_ray.training.on_ray`)."""
        from rla_ray.training.on_ray import train_on_ray

        train_on_ray(job)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPool:
    """`pool.own`: the actors that run environments with `pool.backend: ray`."""

    actors: int = ranged(0, least=0, most=MOST_PROCESSES)  # number of actors; 0: as many as the cluster has cores for
    cpus: int = ranged(0, least=0, most=MOST_PROCESSES)  # cores of each actor; 0: all of its node
    address: str = ""  # of the cluster's head; empty: the address in generator.own if it has one, else auto
    patience: float = ranged(600.0, above=0.0, most=LONGEST_WAIT)  # seconds to wait for lost actors

    def environments(self, config: Config, *, note: Callable[[str], None]) -> AbstractContextManager[Environments]:
        """Environments that step on the nodes of the cluster (`rla_ray.hosts.ray_hosts`)."""
        from rla_ray.hosts.ray_hosts import cluster_environments

        return cluster_environments(config, note=note)


class RayLauncher:
    """The object behind the entry point `ray` of `rla.launchers`."""

    Training = RayTraining
    Pool = RayPool
