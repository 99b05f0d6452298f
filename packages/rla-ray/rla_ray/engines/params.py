"""`generator.backend: ray`: engines that stay loaded on the nodes of a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rla.config.schema import LONGEST_WAIT, MOST_PROCESSES, ranged
from rla.config.sections import GeneratorConfig

if TYPE_CHECKING:
    from rla.llm.base import Generator
    from rla.llm.chat import ChatFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class RayEngines:
    """`generator.own`: which engines to run, how many, on which cluster. No output depends on their number or place."""

    engine: Literal["vllm", "transformers", "scripted"] = "vllm"  # the backend that each of them runs
    # number of engines; 0: one per tensor_parallel GPUs of the cluster, or one per node without GPUs
    replicas: int = ranged(0, least=0, most=MOST_PROCESSES)
    address: str = "auto"  # of the cluster's head; auto: the cluster of this machine
    # seconds to wait for lost engines to come back; for engines in use there is no limit
    patience: float = ranged(600.0, above=0.0, most=LONGEST_WAIT)
    sleep: bool = True  # engines give their memory back while a training stage runs

    def generator(
        self, config: GeneratorConfig, *, model: Path | str, chat: ChatFormat, seed: int, training: bool
    ) -> Generator:
        """The engines of the cluster with the weights of `model`. Raises UserError."""
        from rla_ray.engines.pool import cluster_engines

        return cluster_engines(config, model=model, chat=chat, seed=seed)

    def free_memory(self, config: GeneratorConfig) -> None:
        """Put the running engines to sleep. Raises UserError if one stays in use for longer than `patience`."""
        from rla_ray.engines.cluster import engines_asleep

        engines_asleep(config)
