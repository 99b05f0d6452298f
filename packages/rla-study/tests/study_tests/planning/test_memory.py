"""Bytes by formula: worked out by hand, and those of real checkpoints and real tensors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rla_study.planning.disk import CheckpointBytes, checkpoint_bytes, run_bytes, whole_and_exported
from rla_study.planning.memory import (
    Launched,
    activation_bytes,
    held_tokens,
    inference_bytes,
    training_bytes,
)
from rla_study.planning.shapes import SHAPES, ModelShape, shape_of_config

from rla.config.sections import CheckpointsConfig
from rla.config.training import LoraConfig, TrainConfig

SMALL = ModelShape(
    name="small",
    hidden=4,
    intermediate=8,
    layers=3,
    heads=2,
    key_heads=1,
    width=2,
    vocabulary=10,
    tied=True,
    bias=False,
)
TRAIN = TrainConfig(dtype="bfloat16", tokens_per_batch=100)


def test_train_state_is_sixteen_bytes_a_weight_shared_by_those_that_spread_it() -> None:
    alone = training_bytes(SMALL, TRAIN, Launched(), cuda=True)
    copied = training_bytes(SMALL, TRAIN, Launched(processes=4), cuda=True)
    spread = training_bytes(SMALL, TRAIN, Launched(processes=4, spread=True), cuda=True)
    assert SMALL.weights == 3 * (4 * (2 * 4 + 2 * 2 + 24) + 8) + 44  # 500
    assert alone.state == copied.state == 16 * 500 and spread.state == 4 * 500
    assert (alone.copies, spread.copies) == (2 * 500, 2 * (2 * 152 + 44) + 6 * 152)
    assert training_bytes(SMALL, replace(TRAIN, dtype="float32"), Launched(), cuda=True).copies == 0
    assert training_bytes(SMALL, TRAIN, Launched(), cuda=False).copies == alone.copies


def test_lora_trains_the_adapter_alone() -> None:
    config = replace(TRAIN, lora=LoraConfig(rank=2))
    adapter = 3 * 2 * (2 * 8 + 2 * 6 + 3 * 12)
    assert SMALL.adapter_weights(2) == adapter
    assert training_bytes(SMALL, config, Launched(), cuda=True).state == 16 * adapter + 2 * 500


def test_activations_of_one_token_by_hand() -> None:
    """fp32: 4 x (4 x 4 + 2 x 4) of norms, 4 x (3 x 4 + 2 x 2 + 4 x 8) of products; 4 x (2 x 8 + 4) of gradients."""
    layer, backward = 4 * 24 + 4 * 48, 4 * 20
    whole = activation_bytes(SMALL, 1, mixed=False, spread=False, recomputed=False)
    assert whole == 3 * layer + backward
    assert activation_bytes(SMALL, 1, mixed=False, spread=False, recomputed=True) == 3 * 16 + layer + backward
    assert activation_bytes(SMALL, 7, mixed=False, spread=False, recomputed=False) == 7 * whole


def test_inference_holds_weights_and_the_cache() -> None:
    assert inference_bytes(SMALL, dtype="bfloat16", held_tokens=10, tensor_parallel=1) == 2 * 500 + 10 * 2 * 3 * 2 * 2
    shape = SHAPES["qwen2.5-7b"]
    assert shape.cache_bytes(2) == 57_344  # 28 layers x 4 heads x 128 x keys and values x 2 bytes
    budget = 0.85 * 80e9
    assert held_tokens(shape, dtype="bfloat16", budget=budget, tensor_parallel=1) == 867_898
    assert held_tokens(shape, dtype="bfloat16", budget=10e9, tensor_parallel=1) < 0


def test_disk_of_a_run_by_hand() -> None:
    """Iterations of 14 bytes a model; 1 + 3 last ones are whole, of 50 and 100 the exports are left."""
    model = CheckpointBytes(state=12, export=2, reference=2, start=2)
    config = CheckpointsConfig(keep=3, export_every=50)
    assert whole_and_exported(120, config) == (4, 2)
    found = run_bytes([model, model], shards=5, iterations=120, config=config)
    common = 8 + 24 + 120 * 5
    assert found.iteration == 2 * 14 + 5
    assert found.kept == common + 120 * 28
    assert found.pruned == common + 4 * 28 + 2 * 4
    everything = run_bytes([model, model], shards=5, iterations=120, config=CheckpointsConfig(keep=0))
    assert everything.pruned == everything.kept == found.kept


def test_a_short_run_stays_whole() -> None:
    assert whole_and_exported(2, CheckpointsConfig(keep=5)) == (2, 0)


def test_a_real_checkpoint_has_the_bytes_of_the_formula(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import json

    from rla.config.sections import ModelConfig
    from rla.models.init import init_model, new_tokenizer
    from rla.training.loop import train
    from tests.unit.training.builders import WORDS, random_sequences

    sizes = ModelConfig(hidden_size=64, layers=2, heads=4, intermediate_size=512, context=128)
    start = tmp_path / "start"
    init_model(start, tokenizer=new_tokenizer([WORDS], context=sizes.context), config=sizes, seed=0)
    shape = shape_of_config(json.loads((start / "config.json").read_text()), name="start")
    config = TrainConfig(lr=1e-3, updates=1, dtype="bfloat16", kl_coef=0.0)
    train(model_folder=start, out=tmp_path / "1", sequences=random_sequences(2), config=config, temperature=1.0, seed=0)
    expected = checkpoint_bytes(shape, config, trains=True, warm="nothing")

    def size(pattern: str) -> int:
        return sum(path.stat().st_size for path in (tmp_path / "1").glob(pattern))

    # Headers of the files: about a hundred bytes a tensor.
    assert size("state/weights*") + size("state/moments*") == pytest.approx(expected.state, rel=0.015)
    assert size("model/*.safetensors") == pytest.approx(expected.export, rel=0.015)
    assert size("state/reference*") == pytest.approx(expected.reference, rel=0.015)
    assert torch.float32.itemsize * 3 * shape.weights == expected.state


def test_real_optimizer_tensors_have_the_bytes_of_the_formula() -> None:
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    from rla.training.shared import make_optimizer
    from study_tests.bench.bench_shape import config_of

    shape = SHAPES["tiny"]
    model = AutoModelForCausalLM.from_config(config_of(shape))
    optimizer = make_optimizer(model, TrainConfig())
    model(input_ids=torch.zeros(1, 3, dtype=torch.long)).logits.sum().backward()
    optimizer.step()
    moments = [value for state in optimizer.state.values() for value in state.values() if value.ndim]
    held = sum(one.nbytes + one.grad.nbytes for one in model.parameters()) + sum(one.nbytes for one in moments)
    assert held == 16 * shape.weights == training_bytes(shape, TRAIN, Launched(), cuda=True).state
