"""Sizes of Qwen2.5, Qwen3 and Qwen3.5 models, and their numbers of weights, without torch.

    layer    H (Q + 2 K) + Q H + 3 H I + 2 H; for Qwen2 + (Q + 2 K) biases; for Qwen3 + 2 norms of the head's width
    gated    Qwen3.5's layer of full attention: H Q more, for the gate of its output
    linear   the other layers of Qwen3.5: H (2 A + 3 B + 2 N) + 4 (2 A + B) + 2 N + W + 3 H I + 2 H
    model    layers + V H + H, + V H if the output layer is not the embedding

H: hidden, I: intermediate, Q and K: heads and key heads times the head's width, V: vocabulary; A and B: keys and values
of linear attention, N: heads of its values, W: the width of one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config.sections import ModelConfig
from rla.errors import UserError
from rla.models.checkpoint import check_model_folder
from rla.training.cost import LayerSizes

NEW_VOCABULARY = 2000  # tokens of a new small model's tokenizer: an upper guess, because the environment's texts decide


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """The layers with a state of fixed size (Gated DeltaNet), which do not keep keys and values of earlier tokens."""

    layers: int
    key_heads: int
    value_heads: int
    width: int = 128
    kernel: int = 4

    def weights(self, hidden: int) -> int:
        """Weights of one layer, without its feed-forward part and norms."""
        keys, values = self.key_heads * self.width, self.value_heads * self.width
        projections = hidden * (2 * keys + 3 * values + 2 * self.value_heads)
        return projections + self.kernel * (2 * keys + values) + 2 * self.value_heads + self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A causal language model; `width`: of a head, `bias`: of queries, keys and values, `head_norms`: of Qwen3.
    `linear`: the layers that have linear attention; the others then gate their output.
    """

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_heads: int
    width: int
    vocabulary: int
    tied: bool
    bias: bool = True
    head_norms: bool = False
    linear: LinearAttention | None = None

    @property
    def attending(self) -> int:
        """The number of layers in which a token sees every earlier one."""
        return self.layers - (self.linear.layers if self.linear else 0)

    @property
    def sizes(self) -> LayerSizes:
        """The sizes that activations depend on."""
        return LayerSizes(self.layers, self.hidden, self.intermediate, self.queries, self.keys)

    @property
    def queries(self) -> int:
        return self.heads * self.width

    @property
    def keys(self) -> int:
        return self.key_heads * self.width

    @property
    def layer_weights(self) -> int:
        """Weights of one layer with full attention."""
        gate = self.linear is not None
        projections = self.hidden * ((2 + gate) * self.queries + 2 * self.keys + 3 * self.intermediate)
        biases = (self.queries + 2 * self.keys) * self.bias
        return projections + biases + 2 * self.hidden + 2 * self.width * self.head_norms

    @property
    def block_weights(self) -> int:
        """Weights of all layers."""
        if self.linear is None:
            return self.layers * self.layer_weights
        other = self.linear.weights(self.hidden) + self.hidden * (3 * self.intermediate + 2)
        return self.attending * self.layer_weights + self.linear.layers * other

    @property
    def outer_weights(self) -> int:
        """Weights of the embedding, the last norm and the output layer."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def weights(self) -> int:
        return self.block_weights + self.outer_weights

    @property
    def tensors(self) -> int:
        """The number of named parameters, for a model without linear attention."""
        return self.layers * (9 + 3 * self.bias + 2 * self.head_norms) + (2 if self.tied else 3)

    def adapter_weights(self, rank: int) -> int:
        """Weights of a LoRA adapter on all linear layers of the blocks: rank (inputs + outputs) for each."""
        ends = 2 * (self.hidden + self.queries) + 2 * (self.hidden + self.keys)
        found = self.layers * 3 * (self.hidden + self.intermediate)
        if self.linear is None:
            return rank * (found + self.layers * ends)
        keys, values = (count * self.linear.width for count in (self.linear.key_heads, self.linear.value_heads))
        mixed = 5 * self.hidden + 2 * keys + 3 * values + 2 * self.linear.value_heads
        return rank * (found + self.attending * (ends + self.queries) + self.linear.layers * mixed)

    def cache_bytes(self, dtype_bytes: int) -> int:
        """Bytes of the keys and values of one token."""
        return 2 * self.attending * self.keys * dtype_bytes


def _qwen(
    name: str,
    sizes: tuple[int, int, int, int, int, int, int],
    *,
    tied: bool,
    third: bool = False,
    value_heads: int = 0,
) -> ModelShape:
    """`value_heads`: of the linear attention in three of four layers of Qwen3.5."""
    hidden, intermediate, layers, heads, key_heads, width, vocabulary = sizes
    return ModelShape(
        name=name,
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        key_heads=key_heads,
        width=width,
        vocabulary=vocabulary,
        tied=tied,
        bias=not third,
        head_norms=third,
        linear=LinearAttention(layers=3 * layers // 4, key_heads=16, value_heads=value_heads) if value_heads else None,
    )


# From their config.json: hidden, intermediate, layers, heads, key heads, width, vocabulary.
SHAPES = {
    shape.name: shape
    for shape in (
        _qwen("qwen2.5-0.5b", (896, 4864, 24, 14, 2, 64, 151936), tied=True),
        _qwen("qwen2.5-1.5b", (1536, 8960, 28, 12, 2, 128, 151936), tied=True),
        _qwen("qwen2.5-3b", (2048, 11008, 36, 16, 2, 128, 151936), tied=True),
        _qwen("qwen2.5-7b", (3584, 18944, 28, 28, 4, 128, 152064), tied=False),
        _qwen("qwen2.5-14b", (5120, 13824, 48, 40, 8, 128, 152064), tied=False),
        _qwen("qwen2.5-32b", (5120, 27648, 64, 40, 8, 128, 152064), tied=False),
        _qwen("qwen3-0.6b", (1024, 3072, 28, 16, 8, 128, 151936), tied=True, third=True),
        _qwen("qwen3-1.7b", (2048, 6144, 28, 16, 8, 128, 151936), tied=True, third=True),
        _qwen("qwen3-4b", (2560, 9728, 36, 32, 8, 128, 151936), tied=True, third=True),
        _qwen("qwen3-8b", (4096, 12288, 36, 32, 8, 128, 151936), tied=False, third=True),
        _qwen("qwen3-14b", (5120, 17408, 40, 40, 8, 128, 151936), tied=False, third=True),
        # Without its vision encoder.
        _qwen("qwen3-vl-8b", (4096, 12288, 36, 32, 8, 128, 151936), tied=False, third=True),
        _qwen("qwen3.5-0.8b", (1024, 3584, 24, 8, 2, 256, 248320), tied=True, third=True, value_heads=16),
        _qwen("qwen3.5-2b", (2048, 6144, 24, 8, 2, 256, 248320), tied=True, third=True, value_heads=16),
        _qwen("qwen3.5-4b", (2560, 9216, 32, 16, 4, 256, 248320), tied=True, third=True, value_heads=32),
        _qwen("qwen3.5-9b", (4096, 12288, 32, 16, 4, 256, 248320), tied=False, third=True, value_heads=32),
        _qwen("qwen3.5-27b", (5120, 17408, 64, 24, 4, 256, 248320), tied=False, third=True, value_heads=48),
        _qwen("tiny", (64, 128, 2, 4, 2, 16, 1000), tied=True),
    )
}


def model_shape_of(source: str, *, new: ModelConfig, key: str, option: str) -> ModelShape:
    """The shape of `model.policy` or another configured model. `source` is a name in the table, a hub id that begins
    with one, a folder with a config.json, or `init`, a new model of the section `model`. Raises UserError that names
    `key`.
    """
    if source == "init":
        return new_shape(new)
    folder = Path(source).expanduser()
    if (folder / "config.json").is_file():
        check_model_folder(folder)
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            raise UserError(f"{folder / 'config.json'}: not valid JSON; fetch or write the file again") from None
        if not isinstance(config, dict):
            raise UserError(f"{folder / 'config.json'}: expected a JSON object; fetch or write the file again")
        return shape_of_config(config, name=folder.name)
    last = source.rstrip("/").split("/")[-1].lower()
    for name in sorted(SHAPES, key=len, reverse=True):
        if last == name or last.startswith(f"{name}-"):
            return SHAPES[name]
    known = ", ".join(SHAPES)
    raise UserError(f"{key}: the sizes of {source} are not known; give {option} one of {known}, or its model folder")


def new_shape(model: ModelConfig) -> ModelShape:
    """The shape that `rla init-model` makes."""
    width = model.hidden_size // model.heads
    sizes = (model.hidden_size, model.intermediate_size, model.layers, model.heads, max(1, model.heads // 2), width)
    return _qwen("init", (*sizes, NEW_VOCABULARY), tied=True, third=True)


def shape_of_config(config: Mapping[str, Any], *, name: str) -> ModelShape:
    """The shape from a Hugging Face config.json of a Qwen2, Qwen3, Qwen3.5 or Llama model; for a model with a vision
    encoder, of its text part. Raises UserError for a missing size and for a mixture of experts.
    """
    tied = bool(config.get("tie_word_embeddings", False))
    config = config.get("text_config") or config
    for key, value in config.items():
        if key.endswith("experts") and isinstance(value, int) and value > 1:
            raise UserError(
                f"{name}: config.json has {key}: {value}, and the memory of a mixture of experts cannot be planned; "
                "take a dense model, or write the params file by hand and run it without a plan"
            )
    kind = str(config.get("model_type"))
    try:
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        layers = int(config["num_hidden_layers"])
        linear = list(config.get("layer_types") or ()).count("linear_attention")
        return ModelShape(
            name=name,
            hidden=hidden,
            intermediate=int(config["intermediate_size"]),
            layers=layers,
            heads=heads,
            key_heads=int(config.get("num_key_value_heads") or heads),
            width=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", tied)),
            bias=kind == "qwen2",
            head_norms=kind.startswith("qwen3"),
            linear=LinearAttention(
                layers=linear,
                key_heads=int(config["linear_num_key_heads"]),
                value_heads=int(config["linear_num_value_heads"]),
                width=int(config["linear_key_head_dim"]),
                kernel=int(config["linear_conv_kernel_dim"]),
            )
            if linear
            else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{name}: config.json has no {error}; give a shape by name") from None
