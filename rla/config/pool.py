"""Where slow environments step: processes of this machine, or actors on the nodes of a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rla.config.bounds import LONGEST_WAIT, MOST_PROCESSES, ranged


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """In which processes environments step. No output depends on it: it may change within a run."""

    mode: Literal["auto", "always", "never"] = "auto"  # auto: processes of their own for slow environments
    # on which machines: that of the stage, or all nodes of the Ray cluster at generator.ray.address
    backend: Literal["local", "ray"] = "local"
    # environments alive at once; 0: eight per core, for most of them wait for a reply
    workers: int = ranged(0, least=0, most=MOST_PROCESSES)
    # a reset or a step that takes longer is played again in a new process
    step_deadline_s: float = ranged(60.0, above=0.0, most=LONGEST_WAIT)
    actors: int = ranged(0, least=0, most=MOST_PROCESSES)  # `ray`: how many; 0: as many as the cluster has cores for
    cpus: int = ranged(0, least=0, most=MOST_PROCESSES)  # `ray`: cores that each actor takes; 0: all of its node
