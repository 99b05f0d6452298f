"""What a worker of `launch.training: ray` does: the stage's own training, as the rank that Ray Train made it.

Ray Train says which rank this process is, and has joined the ranks when this starts. accelerate's variables, which the
driver sends, say how they share the model. So the stage runs as it does under `accelerate launch`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.processes import LAUNCHED, rank
from rla_ray.code_digest import refuse_other_code
from rla_ray.connection import devices_of_ray_worker

USED_DEVICES = "devices"  # what a worker says of itself, beside the calls of Progress
SHARED = "training on Ray needs folders that all nodes see, under the same path (docs/guide/cluster.md)"


class Board(Protocol):
    """Where the first rank says how far it is: Ray's queue."""

    def put(self, item: Any) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOrder:
    """What every worker is told."""

    ctx: StageContext  # its progress is not used
    folder: Path  # the driver's working directory, to which paths are relative
    reads: tuple[Path, ...]  # folders that must be there
    environment: Mapping[str, str]  # variables of accelerate
    code: str  # digest of the driver's
    board: Board


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """Progress that the driver shows; None reports nothing."""

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
    """Train and write the checkpoint, together with the other workers.

    Raises UserError as the stage does, where this node does not see the folders, and where it has other code.
    """
    os.environ.update(dict(order.environment) | {LAUNCHED: "1"})
    here = f"node {os.uname().nodename}"
    refuse_other_code(order.code)
    try:
        os.chdir(order.folder)
    except OSError:
        raise UserError(f"{order.folder}: not there on {here}; {SHARED}") from None
    for folder in order.reads:
        if not folder.exists():
            raise UserError(f"{folder}: not there on {here}; {SHARED}")
    order.board.put((USED_DEVICES, devices_of_ray_worker(), {}))
    progress = ReportedProgress(order.board if rank() == 0 else None)
    import_module(order.ctx.spec.module).run(replace(order.ctx, progress=progress))
