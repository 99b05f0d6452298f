"""What a stage command reads and writes: one row of the table in `stages`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """One command. `reads` and `writes` are artifact names of `rla.store.layout`; each is also an option `--<option>`.

    `sections` are the params that the stage depends on, whole (`env`) or by key (`policy.reply`); `heavy` stages
    import torch. What lies `beside` the loop reads a run with its own parameters, and says nothing of them. The work of
    `divided` stages may be sliced. `options` are further options of the command, each with its name, its annotation for
    typer and its default; `StageContext.options` has the values that are not None, by name.
    """

    name: str
    module: str
    summary: str
    example: str
    reads: tuple[tuple[str, str], ...]  # (option, artifact)
    writes: tuple[tuple[str, str], ...]
    sections: tuple[str, ...]
    heavy: bool = False
    beside: bool = False
    divided: bool = False
    options: tuple[tuple[str, Any, Any], ...] = ()
