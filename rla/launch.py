"""Training on several processes from an ordinary call: the stage starts itself again under `accelerate launch`.

`launch.training` names a configuration of accelerate (`pipelines/accelerate/`). So `dvc repro` on a node with GPUs
needs no other command lines than on a laptop. A process that a launcher has started never launches again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.errors import UserError
from rla.resources import resource
from stages import StageSpec

TRAINING = ("train-policy", "train-rm")
OPTIONS = {"params": "--params", "run": "--run", "iteration": "--iteration", "seed": "--seed", "env": "--env"}


def launcher(spec: StageSpec, config: Config) -> Path | None:
    """The configuration to launch `spec` with, or None where this process is to run it. Raises UserError."""
    name = config.launch.training
    if spec.name not in TRAINING or name is None or "WORLD_SIZE" in os.environ:
        return None
    path = Path(name)
    if path.is_file():
        return path
    try:
        return resource(name)
    except UserError:
        raise UserError(
            f"launch.training: {name}: no such file; name a configuration of accelerate launch, "
            "such as pipelines/accelerate/fsdp2.yaml"
        ) from None


def arguments_of(spec: StageSpec, values: Mapping[str, Any]) -> list[str]:
    """The command line that gave `values`."""
    found = [spec.name]
    for key, option in OPTIONS.items():
        if values[key] is not None:
            found += [option, str(values[key])]
    for text in values["set_"] or ():
        found += ["--set", text]
    for name, _ in (*spec.reads, *spec.writes):
        path = values[f"path_{name}".replace("-", "_")]
        if path is not None:
            found += [f"--{name}", str(path)]
    return [*found, "--overwrite"] if values["overwrite"] else found


def launched(config: Path, arguments: Sequence[str]) -> int:
    """Run `rla <arguments>` as `config` says and wait for it; the exit status."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config), "-m", "rla"]
    return subprocess.run([*command, *arguments], check=False).returncode
