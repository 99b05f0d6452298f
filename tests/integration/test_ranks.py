"""Two processes train what one process trains: each with the whole model (DDP), FSDP2, and DeepSpeed's ZeRO."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from rla.models.load import load_model
from tests.integration import load_in_ranks, train_in_ranks
from tests.integration.pipelines import MEASURED
from tests.unit.training.builders import tiny_model

pytestmark = pytest.mark.usefixtures("forked_python")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests/integration/train_in_ranks.py"
CASES = (  # model, kind, file of pipelines/accelerate
    ("even", "full", "ddp"),
    ("odd", "full", "fsdp2"),
    ("even", "lora", "fsdp2"),
    ("even", "checkpointing", "fsdp2"),
    ("even", "hsdp", "fsdp2"),
    ("even", "full", "deepspeed_zero2"),
    ("odd", "full", "deepspeed_zero3"),
)
Made = dict[tuple[str, str], Path]  # by model and kind
needs_deepspeed = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="the deepspeed extra")


def launched(config: str, *arguments: str, script: Path = SCRIPT, processes: int = 2) -> None:
    """Processes as `pipelines/accelerate/<config>.yaml` says, without GPUs."""
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(processes)]
    launcher += ["--main_process_port", "0"]
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    environment["PYTHONFAULTHANDLER"] = "1"  # a crash in native code prints its stack
    environment["TORCHDYNAMO_DISABLE"] = "1"  # DeepSpeed compiles a function of Muon as it is imported, for 2 s a rank
    done = subprocess.run(
        [*launcher, "--config_file", f"pipelines/accelerate/{config}.yaml", str(script), *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def odd_model(folder: Path) -> Path:
    """A Llama with biases and tied embeddings, none of whose sizes two ranks divide."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=127,
        hidden_size=18,
        intermediate_size=27,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("ranks")
    return {"even": tiny_model(folder / "even"), "odd": odd_model(folder / "odd")}


@pytest.fixture(scope="module")
def single(starts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Made:
    """What one process makes."""
    folders = {}
    for model, kind in (("even", "full"), ("even", "lora"), ("odd", "full")):
        folders[model, kind] = tmp_path_factory.mktemp(f"{model}-{kind}")
        train_in_ranks.run(starts[model], folders[model, kind], kind=kind)
    return folders


@pytest.fixture(scope="module")
def double(starts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """What two processes make, by configuration: all of its cases one after the other."""

    @cache
    def made(config: str) -> Made:
        cases = [(model, kind) for model, kind, own in CASES if own == config]
        folders = {case: tmp_path_factory.mktemp("-".join((config, *case))) for case in cases}
        launched(config, *(word for case, out in folders.items() for word in (str(starts[case[0]]), str(out), case[1])))
        return folders

    return made


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
    ("model", "kind", "config"),
    [
        *CASES[:-2],
        pytest.param(*CASES[-2], marks=needs_deepspeed),
        pytest.param(*CASES[-1], marks=[needs_deepspeed, pytest.mark.slow]),
    ],
)
def test_two_processes_give_the_weights_and_metrics_of_one(
    model: str,
    kind: str,
    config: str,
    starts: dict[str, Path],
    single: Made,
    double: Callable[[str], Made],
) -> None:
    """Three steps each in two stages, the second from the state that the first left."""
    folder = double(config)[model, kind]
    before = load_file(starts[model] / "model.safetensors")
    expected = single[model, "lora" if kind == "lora" else "full"]  # the other kinds change no number
    for stage in ("1", "2"):
        assert_same(expected / stage, folder / stage)
        after = load_model(folder / stage / "model").state_dict()
        assert any(not torch.allclose(after[key], before[key], atol=1e-4) for key in before)
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]


def test_one_process_goes_on_where_two_stopped(double: Callable[[str], Made], tmp_path: Path) -> None:
    """The train state is the same files whatever wrote it: FSDP2's goes on in a process that has the whole model."""
    folder = double("fsdp2")["odd", "full"]
    train_in_ranks.run(folder / "1", tmp_path, stages=1, seed_of_rows=2)
    assert_same(folder / "2", tmp_path / "1")


@pytest.mark.slow
def test_two_groups_of_two_processes_give_the_weights_of_one(
    starts: dict[str, Path], single: Made, tmp_path: Path
) -> None:
    """HSDP proper: weights are sharded within a group, and gradients added over both."""
    launched("fsdp2", str(starts["odd"]), str(tmp_path), "hsdp", processes=4)
    for stage in ("1", "2"):
        assert_same(single["odd", "full"] / stage, tmp_path / stage)


def test_a_rank_reads_its_part_of_the_model(tmp_path: Path) -> None:
    """A model of 128 MiB: one of two ranks holds its half and a tensor, at no time three quarters."""
    load_in_ranks.make_model(tmp_path / "large")
    tiny_model(tmp_path / "tiny")
    script = ROOT / "tests/integration/load_in_ranks.py"
    launched("fsdp2", str(tmp_path / "tiny"), str(tmp_path / "large"), str(tmp_path), script=script)
    for rank in range(2):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert 0.4 < found["peak"] / found["model"] < 0.75, found
