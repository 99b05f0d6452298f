"""Two processes train what one process trains: each with the whole model (DDP), FSDP2, and DeepSpeed's ZeRO."""

from __future__ import annotations

import importlib.util
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
SCRIPT = ROOT / "tests/integration/train_in_ranks.py"
needs_deepspeed = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="the deepspeed extra")


def launched(config: str, *arguments: str) -> None:
    """Two processes as `pipelines/accelerate/<config>.yaml` says, without GPUs."""
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", "--main_process_port", "0"]
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        [*launcher, "--config_file", f"pipelines/accelerate/{config}.yaml", str(SCRIPT), *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("ranks") / "start")


@pytest.fixture(scope="module")
def single(start: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What one process makes, by kind."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ("full", "lora")}
    for kind, folder in folders.items():
        train_in_ranks.run(start, folder, kind=kind)
    return folders


def assert_same(one: Path, two: Path) -> None:
    """Every stored tensor up to rounding, and the metrics of every update."""
    files = sorted(path.relative_to(one) for path in one.rglob("*.safetensors"))
    assert files == sorted(path.relative_to(two) for path in two.rglob("*.safetensors"))
    for file in files:
        expected, found = load_file(one / file), load_file(two / file)
        assert expected.keys() == found.keys()
        for key, value in expected.items():
            torch.testing.assert_close(
                found[key], value, atol=5e-6, rtol=1e-4, msg=lambda text, file=file, key=key: f"{file} {key}: {text}"
            )
    for line_one, line_two in zip(
        *((folder / "metrics.jsonl").read_text().splitlines() for folder in (one, two)), strict=True
    ):
        left, right = (
            {k: v for k, v in json.loads(line).items() if k not in MEASURED} for line in (line_one, line_two)
        )
        assert right == pytest.approx(left, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("full", "ddp"),
        ("full", "fsdp2"),
        ("lora", "fsdp2"),
        ("checkpointing", "fsdp2"),
        pytest.param("full", "deepspeed_zero2", marks=needs_deepspeed),
        pytest.param("full", "deepspeed_zero3", marks=needs_deepspeed),
    ],
)
def test_two_processes_give_the_weights_and_metrics_of_one(
    kind: str, config: str, start: Path, single: dict[str, Path], tmp_path: Path
) -> None:
    """Three steps each in two stages, the second from the state that the first left."""
    launched(config, str(start), str(tmp_path), kind)
    before = load_file(start / "model.safetensors")
    expected = single["full" if kind == "checkpointing" else kind]  # recomputing changes no number
    for stage in ("1", "2"):
        assert_same(expected / stage, tmp_path / stage)
        after = load_file(tmp_path / stage / "model/model.safetensors")
        assert any(not torch.allclose(after[key], before[key], atol=1e-4) for key in before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
