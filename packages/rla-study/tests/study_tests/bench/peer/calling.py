"""One process for each cell: how it is called, and how it reads its call."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from study_tests.bench.peer.places import Places, rows_of
from study_tests.bench.peer.plan import Arm, Cell

MODULES = {Arm.OUTCOME: "ours", Arm.LOOP: "ours", Arm.TRL: "theirs"}


def run_cell(places: Places, cell: Cell) -> None:
    """Train what a cell lacks in a process of its own, with one thread. SystemExit where it fails."""
    if len(rows_of(places.cell(cell))) < cell.iterations:
        call = json.dumps({"cell": asdict(cell), "params": str(places.params), "sets": places.sets})
        run_apart(MODULES[cell.arm], places, call, folder=places.cell(cell))


def run_apart(module: str, places: Places, call: str, *, folder: Path) -> None:
    """`python -m study_tests.bench.peer.<module>`, what it prints in `<folder>/log`. SystemExit where it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", f"study_tests.bench.peer.{module}", "--root", str(places.root), "--call", call]
    with (folder / "log").open("a") as log:
        status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment).returncode
    if status:
        tail = "\n".join((folder / "log").read_text(errors="replace").splitlines()[-15:])
        raise SystemExit(f"{folder}/log ends with:\n{tail}")


def called() -> tuple[Path, str]:
    """The root and the call that this process was given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--call", required=True)
    given = parser.parse_args()
    return given.root, given.call


def called_cell() -> tuple[Places, Cell]:
    root, text = called()
    call = json.loads(text)
    cell = call["cell"] | {"arm": Arm(call["cell"]["arm"]), "evaluated": tuple(call["cell"]["evaluated"])}
    return Places(root=root, params=Path(call["params"]), sets=tuple(call["sets"])), Cell(**cell)
