"""Training on several processes from an ordinary call: the stage starts itself again under `accelerate launch`.

`launch.training` names a configuration of accelerate (`pipelines/accelerate/`). So `dvc repro` on a node with GPUs
needs no other command lines than on a laptop. What can be checked is checked before; the processes get the resolved
parameters in a file and every folder by name. They end with the process that waits for them, and never launch again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rla.config import Config
from rla.errors import UserError
from rla.processes.ranks import LAUNCHED, end_with_parent, launched
from rla.store.resources import resource


def launcher(config: Config) -> Path | None:
    """The configuration to launch training with, or None where this process is to do it. Raises UserError."""
    name = config.launch.training
    if name is None or launched():
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


def launch(file: Path, arguments: Sequence[str]) -> None:
    """Run `rla <arguments>` as the launcher's configuration `file` says and wait. Raises UserError where it fails."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file), "-m", "rla", *arguments]
    done = subprocess.run(command, env=os.environ | {LAUNCHED: "1"}, preexec_fn=end_with_parent, check=False)
    if done.returncode:
        raise UserError(
            f"{arguments[0]}: the processes of {file} ended with status {done.returncode}; they say why above"
        )
