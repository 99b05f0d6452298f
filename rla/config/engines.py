"""Engines that stay: those of `generator.backend: ray`, which stand on the nodes of a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rla.config.bounds import LONGEST_WAIT, MOST_PROCESSES, ranged


@dataclass(frozen=True, slots=True, kw_only=True)
class RayConfig:
    """Which engines, how many of them, and on which cluster. No output depends on how many there are, nor on where."""

    engine: Literal["vllm", "transformers", "scripted"] = "vllm"  # the backend that each of them runs
    # how many; 0: one for every tensor_parallel GPUs of the cluster, one for each node where it has none
    replicas: int = ranged(0, least=0, most=MOST_PROCESSES)
    address: str = "auto"  # of the cluster's head; auto: the cluster that runs on this machine
    # seconds that a stage waits for lost engines or environments to come back; for engines in use it waits on
    patience: float = ranged(600.0, above=0.0, most=LONGEST_WAIT)
    sleep: bool = True  # engines give their memory back while a training stage runs
