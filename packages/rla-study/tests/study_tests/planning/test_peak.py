"""Peak host memory of a real update is what the formula says, to a quarter."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
TOLERANCE = 0.25  # measured 0.81 to 1.18 of the formula, over widths 256 to 512, 2 to 12 layers, 256 to 2048 tokens


PROGRAM = Path(__file__).parents[1] / "bench/memory_of_update.py"
Measured = Callable[..., dict[str, float]]


@pytest.fixture
def measured(forking: Path) -> Measured:
    """What the program finds, in a process that is forked from one with most libraries."""

    def measure(*arguments: str) -> dict[str, float]:
        environment, command = os.environ | {"OMP_NUM_THREADS": "1"}, [str(forking / "python"), str(PROGRAM)]
        done = subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=True
        )
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found

    return measure


@pytest.mark.parametrize(
    "arguments",
    [pytest.param((), id="kept", marks=pytest.mark.slow), pytest.param(("--checkpointing",), id="recomputed")],
)
def test_an_update_of_a_small_model(arguments: tuple[str, ...], measured: Measured) -> None:
    found = measured(*arguments)
    assert found["measured"] == pytest.approx(found["expected"], rel=TOLERANCE)
    assert found["expected"] > found["state"] * 1.25  # activations count: weights alone would not pass


def test_a_stage_that_trains_an_adapter_holds_its_base_once(measured: Measured) -> None:
    """At the end, too: base and adapter are never merged for the checkpoint, and the base is its own reference."""
    pytest.importorskip("peft")
    sizes = {"rank": 8, "hidden": 512, "layers": 4, "vocabulary": 60000, "tokens": 128, "length": 128}
    found = measured(*(f"--{name}={size}" for name, size in sizes.items()))
    assert found["measured"] < 1.15 * found["expected"]
    assert 4 * found["weights"] > 0.5 * found["expected"]  # so that a second copy would show
