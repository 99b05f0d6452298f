"""A stage for workers on Ray that is interrupted at its third update; `<run>/plan` says how.

none      it is not
worker    the second rank is killed
node      all ranks wait until the test has killed a node
mistake   the second rank raises what a stage raises where the user can mend it
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.pipeline import StageContext
from rla.processes import rank
from rla.training.loop import train
from tests.integration.pipelines import until
from tests.integration.train_in_ranks import CONFIG
from tests.unit.training.builders import random_sequences

UPDATES = 5
FATAL = 3


def run(ctx: StageContext) -> dict[str, Any]:
    """Saves after every update, and writes down which updates were made."""
    plan = (ctx.run / "plan").read_text()

    def log(metrics: dict[str, Any]) -> None:
        if "resumed" in metrics:
            return
        with (ctx.run / f"updates-{rank()}").open("a") as made:
            made.write(f"{metrics['update']}\n")
        first = (ctx.run / f"updates-{rank()}").read_text().split().count(str(FATAL)) == 1
        if metrics["update"] == FATAL and first:
            interrupted(plan, ctx.run)

    return train(
        model_folder=ctx.run / "start",
        out=ctx.run / "out",
        sequences=random_sequences(13, seed=1),
        config=replace(CONFIG, updates=UPDATES),
        temperature=0.9,
        seed=5,
        log=log,
        save_interval_s=0.0,
        replicas=ctx.config.launch.replicas,
    )


def interrupted(plan: str, folder: Path) -> None:
    if plan == "worker" and rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if plan == "mistake" and rank() == 1:
        raise UserError("rows: damaged; make them again")
    if plan == "node":
        (folder / f"waits-{rank()}").touch()
        until(lambda: (folder / "killed").exists(), seconds=300)
