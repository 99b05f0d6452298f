"""Where slow environments step: in processes of this machine, or where an installed package has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rla.config.bounds import LONGEST_WAIT, MOST_PROCESSES, ranged


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """In which processes environments step. No output depends on it: it may change within a run."""

    mode: Literal["auto", "always", "never"] = "auto"  # auto: processes of their own for slow environments
    backend: str = "local"  # on the stage's machine, or where a launcher of an installed package has them
    own: Any = None  # parameters of that launcher
    # environments alive at once; 0: eight per core, for most of them wait for a reply
    workers: int = ranged(0, least=0, most=MOST_PROCESSES)
    # a reset or a step that takes longer is played again in a new process
    step_deadline_s: float = ranged(60.0, above=0.0, most=LONGEST_WAIT)
