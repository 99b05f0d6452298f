"""What a pass may hold by default: a bound in bytes, which is many tokens of a small model and few of a large one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rla.training.cost import CPU_PASS_BYTES, LayerSizes, layer_sizes, pass_tokens, token_bytes

SMALL = LayerSizes(hidden=128, intermediate=256, layers=3, queries=128, keys=64)  # of params.yaml
SMOLLM2 = LayerSizes(hidden=576, intermediate=1536, layers=30, queries=576, keys=192)


def test_activations_of_a_token_by_hand() -> None:
    """fp32: 4 x (4 x 576 + 2 x 576) of the norms, 4 x (3 x 576 + 2 x 192 + 4 x 1536) of products."""
    layer, backward = 13_824 + 33_024, 4 * (2 * 1536 + 576)
    assert token_bytes(SMOLLM2, recomputed=False) == 30 * layer + backward
    assert token_bytes(SMOLLM2, recomputed=True) == 30 * 576 * 4 + layer + backward


def test_a_small_models_batch_is_one_pass_and_a_language_models_is_not() -> None:
    assert pass_tokens(SMALL, recomputed=False, cuda=False) > 32 * 2048
    assert pass_tokens(SMOLLM2, recomputed=False, cuda=False) == 1512
    assert pass_tokens(SMOLLM2, recomputed=True, cuda=False) > 8 * 1512
    assert pass_tokens(SMOLLM2, recomputed=False, cuda=True) == 6049
    assert pass_tokens(SMOLLM2._replace(layers=10**9), recomputed=False, cuda=False) == 1


def test_sizes_are_those_of_the_model() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3
    )
    assert layer_sizes(config) == SMOLLM2


def test_a_warm_start_keeps_to_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl", reason="the warm start needs TRL")
    from rla.config.training import SftConfig
    from rla.models.load import load_model
    from rla.training.sequences import Example
    from rla.training.sft import WeightedTrainer, sft
    from tests.unit.training.builders import tiny_model

    start = tiny_model(tmp_path / "start")
    each = token_bytes(layer_sizes(load_model(start).config), recomputed=False)
    taught = [Example(token_ids=list(range(10, 30)), weights=[1.0] * 20)] * 8
    passes: list[Any] = []
    loss = WeightedTrainer.compute_loss
    monkeypatch.setattr(
        WeightedTrainer, "compute_loss", lambda *given, **more: passes.append(given) or loss(*given, **more)
    )
    for name, room, expected in (("whole", CPU_PASS_BYTES, 1), ("bounded", 45 * each, 4)):
        monkeypatch.setattr("rla.training.cost.CPU_PASS_BYTES", room)
        passes.clear()
        sft(model_folder=start, out=tmp_path / name, rounds=[(taught, SftConfig(steps=1, batch_size=8))], seed=0)
        assert len(passes) == expected


HOLES = """
import torch
from rla.training.cost import return_freed_memory

def held():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))

return_freed_memory()
del (freed := [torch.ones(1 << 20)])[:]  # glibc raises its limit when it frees a block
before, blocks, kept = held(), [], []
for _ in range(50):
    blocks.append(torch.ones(1 << 20))
    kept.append(torch.ones(1 << 14))
del blocks[:]
print(held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_freed_blocks_between_others_go_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 50  # MiB, of the 200 that were freed
