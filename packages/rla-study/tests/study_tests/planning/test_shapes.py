"""Weights by formula are those of the real architectures, and of the published models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rla_study.planning.shapes import SHAPES, model_shape_of, new_shape, shape_of_config

from rla.config.sections import ModelConfig
from rla.errors import UserError
from rla.models.load import generation_stops
from tests.unit.training.builders import SIZES, tiny_model


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-3b", 3_085_938_688),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-14b", 14_770_033_664),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-8b", 8_190_735_360),
    ],
)
def test_published_counts(name: str, weights: int) -> None:
    assert SHAPES[name].weights == weights


def test_a_layer_by_hand() -> None:
    """hidden 64, heads of 16: 64 x (64 + 2 x 32) + 64 x 64 + 3 x 64 x 128, 128 biases, 128 of norms."""
    assert SHAPES["tiny"].layer_weights == 8192 + 4096 + 24576 + 128 + 128
    assert SHAPES["tiny"].weights == 2 * 37120 + 1000 * 64 + 64
    assert SHAPES["tiny"].adapter_weights(8) == 2 * 8 * (2 * 128 + 2 * 96 + 3 * 192)
    assert SHAPES["tiny"].cache_bytes(2) == 2 * 2 * 32 * 2


@pytest.mark.parametrize("name", ["qwen2.5-7b", "qwen3-4b", "tiny"])
def test_the_architecture_itself_has_as_many(name: str) -> None:
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    from study_tests.bench.bench_shape import config_of

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of(SHAPES[name]))
    parameters = dict(model.named_parameters())
    assert sum(one.numel() for one in parameters.values()) == SHAPES[name].weights
    assert len(parameters) == SHAPES[name].tensors


@pytest.mark.parametrize("name", ["qwen3.5-0.8b", "qwen3.5-4b", "qwen3.5-9b"])
def test_a_hybrid_architecture_has_as_many_and_is_read_from_its_config(name: str) -> None:
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    from study_tests.bench.bench_shape import config_of

    shape = SHAPES[name]
    assert shape.attending == shape.layers // 4
    config = config_of(shape)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(one.numel() for one in model.parameters()) == shape.weights
    linear = [one for part, one in model.named_modules() if isinstance(one, torch.nn.Linear) and ".layers." in part]
    assert sum(5 * (one.in_features + one.out_features) for one in linear) == shape.adapter_weights(5)
    assert shape_of_config({"model_type": "qwen3_5", "text_config": config.to_dict()}, name=name) == shape


def test_a_new_model_and_its_folder(tmp_path: Path) -> None:
    config = json.loads((tiny_model(tmp_path / "m") / "config.json").read_text())
    found, expected = shape_of_config(config, name="m"), new_shape(SIZES)
    assert (found.layer_weights, found.layers, found.tied) == (expected.layer_weights, expected.layers, expected.tied)


def test_a_mixture_of_experts_is_refused() -> None:
    dense = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    dense |= {"num_attention_heads": 4, "vocab_size": 100, "n_shared_experts": None, "num_local_experts": 1}
    assert shape_of_config(dense, name="m").layers == 2
    for config in (dense | {"num_experts": 8}, {"text_config": dense | {"n_routed_experts": 8}}):
        with pytest.raises(UserError, match=r"m: config\.json has n\w+_experts: 8, and .* take a dense model"):
            shape_of_config(config, name="m")


def test_models_are_known_by_name_hub_id_or_folder(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "m")
    known = {"new": ModelConfig(), "key": "model.policy", "option": "--shape"}
    assert model_shape_of("Qwen/Qwen2.5-7B-Instruct", **known) is SHAPES["qwen2.5-7b"]
    assert model_shape_of("Qwen/Qwen3-4B-Instruct-2507", **known) is SHAPES["qwen3-4b"]
    assert model_shape_of("qwen2.5-14b", **known) is SHAPES["qwen2.5-14b"]
    assert model_shape_of(str(folder), **known).hidden == 16
    assert model_shape_of("init", **known).hidden == 96
    with pytest.raises(UserError, match=r"model\.policy: the sizes of meta/Llama-9 are not known; give --shape"):
        model_shape_of("meta/Llama-9", **known)


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "[1]"])
def test_a_config_that_is_not_a_json_object_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config\.json: .*; fetch or write the file again"):
        model_shape_of(str(tmp_path), new=ModelConfig(), key="model.policy", option="--policy")


def test_stop_tokens_nested_without_end_are_named(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"generation_config\.json: not valid JSON"):
        generation_stops(tmp_path)
