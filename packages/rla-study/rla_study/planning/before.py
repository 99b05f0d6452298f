"""Compares the memory needs of each stage with this machine; `rla run` prints the result before anything loads."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rla.config import Config
from rla.envs.protocols import Probes
from rla.envs.registry import environment
from rla.errors import UserError
from rla.processes import visible_gpus
from rla.report.render import as_text, terminal_width
from rla.report.tables import ABSENT, Table
from rla.text import readable_bytes
from rla_study.planning.command import models_of
from rla_study.planning.plan import Machine, StageNeed, stage_needs
from rla_study.planning.work import Guesses

PATIENCE = 10.0  # seconds that nvidia-smi may take
MIB = 2**20
CGROUP = Path("/sys/fs/cgroup/memory.max")  # the limit of a container; "max" if it has none


def foreseen(config: Config) -> str:
    """A table and a verdict, or one line if the sizes of a model are unknown, as for a hub id."""
    machine = this_machine()
    try:
        models = models_of(config)
        by_task = isinstance(environment(config.env.name), Probes)
        needs = [one for one in stage_needs(config, models, machine, Guesses(), by_task=by_task) if one.host]
    except UserError as error:
        return f"whether the run fits into memory is not known: {error}"
    refusals = [one.refusal for one in needs if one.refusal]
    verdict = f"it may not fit: {refusals[0]}" if refusals else "it fits (`rla plan-memory` adds time and disk)"
    return as_text("Does it fit?", [_memory_table(needs, machine)], width=terminal_width()) + verdict


def this_machine() -> Machine:
    """This host and its visible GPUs, each assumed to be as large as the smallest."""
    gpus = gpu_bytes()
    return Machine(gpus=len(gpus), gpu_bytes=min(gpus, default=0.0), host_bytes=host_bytes())


def gpu_bytes() -> list[float]:
    """Bytes of memory of each visible GPU, from the driver, because torch would open and keep a context on it."""
    chosen = visible_gpus() if "CUDA_VISIBLE_DEVICES" in os.environ else None
    if chosen == []:
        return []
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    command += [f"--id={','.join(chosen)}"] if chosen else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return [MIB * float(line) for line in done.stdout.split()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def host_bytes() -> float:
    """Bytes of the machine's memory, or of the container's limit if that is lower."""
    found = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:
        return min(found, float(CGROUP.read_text()))
    except (OSError, ValueError):
        return found


def _memory_table(needs: Sequence[StageNeed], machine: Machine) -> Table:
    """One row for each stage that has a model."""
    gpu, host = (readable_bytes(size) for size in (machine.gpu_bytes, machine.host_bytes))
    rows = tuple(
        (
            one.stage,
            *(readable_bytes(part) if part else ABSENT for part in one.parts),
            readable_bytes(one.gpu or one.host),
            f"{gpu} of a GPU" if one.gpu else f"{host} of the host",
        )
        for one in needs
    )
    columns = ("stage", "weights, optimizer", "activations", "cache", "together", "there is")
    return Table(title="Memory, predicted", columns=columns, rows=rows)
