"""Training on several processes from an ordinary call: the stage starts itself again under `accelerate launch`.

`launch.training` names a configuration of accelerate (`pipelines/accelerate/`). So `dvc repro` on a node with GPUs
needs no other command lines than on a laptop. What can be checked is checked before; the processes get the resolved
parameters in a file and every folder by name. They end with the process that waits for them, and never launch again.
A launcher of another package (`rla.config.load`) starts processes elsewhere, and such a configuration says how they
share the model.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rla.config import Config
from rla.config.load import LAUNCHERS
from rla.errors import UserError
from rla.plugins import registered
from rla.processes.ranks import LAUNCHED, end_with_parent, launched
from rla.store.layout import resource

PATIENCE = 40.0  # seconds after an interrupt: the launcher ends its ranks 30 s after it has told them


def launcher(config: Config) -> Path | None:
    """The configuration to launch training with, or None where this process is to do it. Raises UserError."""
    name = config.launch.configuration
    if name is None or launched():
        return None
    path = Path(name)
    if path.is_file():
        return path
    try:
        return resource(name)
    except UserError:
        key = "launch.training" if config.launch.own is None else "launch.own.configuration"
        others = ", ".join(registered(LAUNCHERS)) or "none"
        raise UserError(
            f"{key}: {name}: no such file; name a configuration of accelerate launch, such as "
            f"pipelines/accelerate/fsdp2.yaml, or a launcher (installed: {others}; others come with their package)"
        ) from None


def launch(file: Path, arguments: Sequence[str]) -> None:
    """Run `rla <arguments>` as the launcher's configuration `file` says and wait. Raises UserError if it fails.

    An interrupt is passed on once, and the ranks have some time to save what they have trained.
    """
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file), "-m", "rla", *arguments]
    with subprocess.Popen(
        command, env=os.environ | {LAUNCHED: "1"}, preexec_fn=end_with_parent, start_new_session=True
    ) as process:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            process.kill()
            raise
    if status:
        raise UserError(f"{arguments[0]}: the processes of {file} ended with status {status}; they say why above")
