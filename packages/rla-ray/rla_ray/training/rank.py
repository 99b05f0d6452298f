"""A worker of `launch.training: ray`: runs the stage's training as the rank that Ray Train assigned.

Ray Train has set the rank and joined the ranks before this starts. The driver sends accelerate's variables, which say
how the ranks share the model. So the stage runs as it would under `accelerate launch`.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from rla.errors import UserError
from rla.pipeline import StageContext
from rla.processes import LAUNCHED, rank
from rla_ray.code_digest import refuse_other_code
from rla_ray.connection import devices_of_ray_worker

USED_DEVICES = "devices"  # a worker's report of its devices, in addition to the calls of Progress
SHARED = "training on Ray needs folders that all nodes see, under the same path (docs/guide/cluster.md)"


class Board(Protocol):
    """Ray's queue, which takes the progress of the first rank."""

    def put(self, item: Any) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOrder:
    """The order that every worker gets from the driver."""

    ctx: bytes  # a pickled StageContext; its parameters may be of a package that a node with other code lacks
    folder: Path  # the driver's working directory, which relative paths start from
    reads: tuple[Path, ...]  # folders that must be visible
    environment: Mapping[str, str]  # accelerate's variables
    code: str  # digest of the driver's code
    board: Board


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """Progress that the driver displays. Without a board it reports nothing."""

    board: Board | None

    def start(self, description: str, total: int) -> None:
        self._put("start", description, total=total)

    def advance(self, count: int = 1, **fields: Any) -> None:
        self._put("advance", count, **fields)

    def note(self, text: str) -> None:
        self._put("note", text)

    def _put(self, name: str, value: Any, **fields: Any) -> None:
        if self.board is not None:
            self.board.put((name, value, fields))


def run_rank(order: RankOrder) -> None:
    """Train and write the checkpoint together with the other workers.

    Raises UserError for the stage's own errors, if this node does not see the folders, and if it runs other code.
    """
    os.environ.update(dict(order.environment) | {LAUNCHED: "1"})
    here = f"node {os.uname().nodename}"
    refuse_other_code(order.code)
    ctx: StageContext = pickle.loads(order.ctx)
    try:
        os.chdir(order.folder)
    except OSError:
        raise UserError(f"{order.folder}: not there on {here}; {SHARED}") from None
    for folder in order.reads:
        if not folder.exists():
            raise UserError(f"{folder}: not there on {here}; {SHARED}")
    if threads := ctx.config.launch.threads:
        import torch  # here, because the driver imports this module

        torch.set_num_threads(threads)  # Ray has set the number of CPUs that it reserved
    order.board.put((USED_DEVICES, devices_of_ray_worker(), {}))
    progress = ReportedProgress(order.board if rank() == 0 else None)
    import_module(ctx.spec.module).run(replace(ctx, progress=progress))
