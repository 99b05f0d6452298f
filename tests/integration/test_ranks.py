"""Two processes train what one process trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.integration import train_in_ranks
from tests.integration.pipelines import MEASURED
from tests.unit.training.builders import tiny_model

ROOT = Path(__file__).parents[2]


def launched(*arguments: str, processes: int) -> str:
    """Under torchrun; the output."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_two_processes_give_the_weights_and_metrics_of_one(tmp_path: Path) -> None:
    start = tiny_model(tmp_path / "start")
    train_in_ranks.run(start, tmp_path / "one")
    launched(str(ROOT / "tests/integration/train_in_ranks.py"), str(start), str(tmp_path / "two"), processes=2)

    for name in ("weights", "moments"):
        one, two = (load_file(tmp_path / run / f"state/{name}.safetensors") for run in ("one", "two"))
        before = load_file(start / "model.safetensors")
        assert one.keys() == two.keys()
        for key, value in one.items():
            torch.testing.assert_close(
                two[key], value, atol=2e-6, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
            )
        if name == "weights":
            assert any(not torch.allclose(one[key], before[key], atol=1e-4) for key in one if key in before)
    for line_one, line_two in zip(
        *((tmp_path / run / "metrics.jsonl").read_text().splitlines() for run in ("one", "two")), strict=True
    ):
        one, two = ({k: v for k, v in json.loads(line).items() if k not in MEASURED} for line in (line_one, line_two))
        assert two == pytest.approx(one, rel=1e-3, abs=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "start", "two"]
