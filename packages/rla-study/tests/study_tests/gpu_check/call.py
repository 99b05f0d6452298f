"""The call of a part: what it measures, until when, and where its rows go."""

from __future__ import annotations

import gc
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from study_tests.gpu_check.record import add
from tests.gpu.older_torch import repeat_heads

SMOLLM2 = Path("models/smollm2-135m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`until`: the clock's time when the part should be done. `tiny`: a rehearsal. `arm`: of the loop alone."""

    part: str
    out: Path
    until: float
    tiny: bool
    model: str
    arm: str = ""

    @classmethod
    def given(cls) -> Call:
        if torch.cuda.is_available():
            repeat_heads()
        call = json.loads(sys.argv[1])
        return cls(**call | {"out": Path(call["out"])})

    @property
    def device(self) -> str:
        return "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def left(self) -> float:
        """Seconds."""
        return self.until - time.time()

    def add(self, **row: Any) -> None:
        print(json.dumps(row), flush=True)
        add(self.out, self.part, **row)

    def model_folder(self) -> Path:
        """Of the model that the call names, or of SmolLM2, which the first caller makes.

        Raises Skipped without its package, and in a rehearsal, which it would make long.
        """
        if self.model:
            return Path(self.model)
        if self.tiny:
            raise Skipped("a rehearsal has the model that --model names")
        command = [sys.executable, "-m", "rla_study.smollm2", str(SMOLLM2)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Skipped((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
        return SMOLLM2

    def attempt(self, case: Mapping[str, Any], measured: Callable[[], Mapping[str, Any]]) -> None:
        """Add a row of the case and what was measured of it, or the reason why nothing was."""
        found: Mapping[str, Any] = {"reason": "no time was left"}
        if self.left > 0:
            try:
                found = measured()
            except Exception as error:  # too little memory, or a kernel that the device lacks: other cases do without
                traceback.print_exc()
                found = {"reason": f"{type(error).__name__}: {str(error).partition(chr(10))[0][:160]}"}
        self.add(**case, **found)
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()


class Skipped(Exception):
    """The part cannot be measured here; the reason."""


def measure(*parts: Callable[[Call], None]) -> None:
    """Run the function of the call's part, which has its name. A part that lacks something is skipped."""
    call = Call.given()
    add(call.out, call.part, machine=machine(call))
    try:
        if call.device == "cpu" and not call.tiny:
            raise Skipped("it needs a CUDA device; --shapes tiny rehearses it on a CPU")
        {part.__name__: part for part in parts}[call.part](call)
    except Skipped as reason:
        add(call.out, call.part, state="skipped", reason=str(reason))


def machine(call: Call) -> dict[str, Any]:
    """What figures of this part rest on."""
    found: dict[str, Any] = {
        "device": "cpu",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers")},
        "when": datetime.now(UTC).isoformat(timespec="minutes"),
        "shapes": "tiny" if call.tiny else "real",
    }
    if call.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {"device": properties.name, "gib": round(properties.total_memory / 2**30, 1)}
        found["cuda"] = torch.version.cuda
    return found
