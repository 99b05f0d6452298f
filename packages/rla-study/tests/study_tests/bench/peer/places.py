"""Where the files of a bench lie, and the options that all its calls of `rla` share.

<root>/start/                run folder: pools, and the warm-started policy and judge of iteration 0
<root>/choice/               run folder: held-out tasks on which learning rates are chosen
<root>/cells/<cell>/         run/ of `rla` or policy/<i>/ of TRL; rows.jsonl; eval/<i>.json; log
<root>/report.json           what the table says
<root>/options.json          what all of this was made with
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.store.layout import artifact
from study_tests.bench.peer.plan import Arm, Cell, Point, Spent

# TRL cannot restrict sampling to commands with log-probabilities to match, so nobody does.
EVERYONE = (
    "policy.decoding=free",
    "guards.stop=[]",  # TRL plays on, whatever it reads
    "launch.threads=1",
    "tracking.trackers=[]",
)
OUTCOMES_ALONE = (
    "credit.estimator=outcome",
    "judge.enabled=false",
    "train_rm.enabled=false",
    "adaptation.enabled=false",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """`sets`: overrides of the caller, `KEY=VALUE` each, above the bench's own."""

    root: Path
    params: Path
    sets: tuple[str, ...] = ()

    @property
    def start(self) -> Path:
        return self.root / "start"

    @property
    def choice_pool(self) -> Path:
        return artifact(self.root / "choice", "test_tasks", 0)

    def cell(self, cell: Cell) -> Path:
        return self.root / "cells" / cell.name

    def policy(self, cell: Cell, iteration: int) -> Path:
        """The folder of the policy after an iteration, as a checkpoint or a plain model folder."""
        if cell.arm is Arm.TRL:
            return self.cell(cell) / "policy" / str(iteration)
        return artifact(self.cell(cell) / "run", "policy", iteration)

    def overrides(self, cell: Cell | None = None) -> list[str]:
        """All overrides of a call, the caller's own last."""
        own: Sequence[str] = ()
        if cell is not None:
            own = (f"train_policy.lr={cell.rate!r}", *(OUTCOMES_ALONE if cell.arm is Arm.OUTCOME else ()))
        return [*EVERYONE, *own, *self.sets]

    def options(self, run: Path, cell: Cell | None = None, *, seed: int | None = None) -> list[str]:
        """Of a call of `rla` on `run`."""
        sets = [*self.overrides(cell), *([] if seed is None else [f"seed={seed}"])]
        return ["--run", str(run), "--params", str(self.params), *(word for text in sets for word in ("--set", text))]


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The lines of a cell's iterations, none where there are none yet."""
    file = folder / "rows.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def success_in(metrics: Path) -> float:
    return float(json.loads(metrics.read_text())["success"])


def refuse_other_options(places: Places, start: Path | None) -> None:
    """SystemExit where the root holds work with other parameters or another start, which would be mixed up."""
    own = {"params": places.params.read_text(), "sets": places.sets, "start": start and str(start.resolve())}
    file, text = places.root / "options.json", json.dumps(own)
    places.root.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.read_text() != text:
        raise SystemExit(f"{places.root}: made with other parameters or another start; give another --root")
    file.write_text(text)


def curve_of(places: Places, cell: Cell, start: float) -> list[Point]:
    """Success on the report's tasks over what was spent, from the start's on."""
    points, spent = [Point(success=start, spent=Spent())], Spent()
    for row in rows_of(places.cell(cell))[: cell.iterations]:
        sums = {kind: sum(row[kind].values()) for kind in ("cpu", "wall", "tokens")}
        spent += Spent(episodes=row["episodes"], **sums)
        if row["iteration"] in cell.evaluated:
            found = success_in(places.cell(cell) / "eval" / f"{row['iteration']}.json")
            points.append(Point(success=found, spent=spent))
    return points
