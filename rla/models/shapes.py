"""Sizes of Qwen2.5 and Qwen3 models, and how many weights they have, without torch.

    layer    H (Q + 2 K) + Q H + 3 H I + 2 H, of Qwen2 + (Q + 2 K) biases, of Qwen3 + 2 norms of the head's width
    model    layers + V H + H, + V H where the output layer is not the embedding
H: hidden, I: intermediate, Q and K: heads and key heads times the head's width, V: vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config.sections import ModelConfig
from rla.errors import UserError
from rla.models.folder_files import check_model_folder

NEW_VOCABULARY = 2000  # tokens of a new small model's tokenizer, which its environment's texts decide: an upper guess


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A causal language model; `width`: of a head, `bias`: of queries, keys and values, `head_norms`: of Qwen3."""

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

    @property
    def queries(self) -> int:
        return self.heads * self.width

    @property
    def keys(self) -> int:
        return self.key_heads * self.width

    @property
    def layer_weights(self) -> int:
        """Of one layer."""
        projections = self.hidden * (2 * self.queries + 2 * self.keys + 3 * self.intermediate)
        biases = (self.queries + 2 * self.keys) * self.bias
        return projections + biases + 2 * self.hidden + 2 * self.width * self.head_norms

    @property
    def outer_weights(self) -> int:
        """Of embedding, last norm and output layer."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def weights(self) -> int:
        return self.layers * self.layer_weights + self.outer_weights

    @property
    def tensors(self) -> int:
        """Parameters by name."""
        return self.layers * (9 + 3 * self.bias + 2 * self.head_norms) + (2 if self.tied else 3)

    def adapter_weights(self, rank: int) -> int:
        """Of a LoRA adapter on all linear layers of the blocks: rank (inputs + outputs) for each."""
        ends = 2 * (self.hidden + self.queries) + 2 * (self.hidden + self.keys)
        return self.layers * rank * (ends + 3 * (self.hidden + self.intermediate))

    def cache_bytes(self, dtype_bytes: int) -> int:
        """Keys and values of one token."""
        return 2 * self.layers * self.keys * dtype_bytes


def _qwen(name: str, sizes: tuple[int, int, int, int, int, int, int], *, tied: bool, third: bool = False) -> ModelShape:
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
    )


# As their config.json has them: hidden, intermediate, layers, heads, key heads, width, vocabulary.
SHAPES = {
    shape.name: shape
    for shape in (
        _qwen("qwen2.5-0.5b", (896, 4864, 24, 14, 2, 64, 151936), tied=True),
        _qwen("qwen2.5-1.5b", (1536, 8960, 28, 12, 2, 128, 151936), tied=True),
        _qwen("qwen2.5-3b", (2048, 11008, 36, 16, 2, 128, 151936), tied=True),
        _qwen("qwen2.5-7b", (3584, 18944, 28, 28, 4, 128, 152064), tied=False),
        _qwen("qwen2.5-14b", (5120, 13824, 48, 40, 8, 128, 152064), tied=False),
        _qwen("qwen2.5-32b", (5120, 27648, 64, 40, 8, 128, 152064), tied=False),
        _qwen("qwen3-4b", (2560, 9728, 36, 32, 8, 128, 151936), tied=True, third=True),
        _qwen("qwen3-8b", (4096, 12288, 36, 32, 8, 128, 151936), tied=False, third=True),
        _qwen("tiny", (64, 128, 2, 4, 2, 16, 1000), tied=True),
    )
}


def model_shape_of(source: str, *, new: ModelConfig, key: str, option: str) -> ModelShape:
    """The shape of `model.policy` or another configured model: a name of the table, a hub id that begins with one, a
    folder with a config.json, or `init`, a new model of the section `model`. Raises UserError that names `key`.
    """
    if source == "init":
        return new_shape(new)
    folder = Path(source).expanduser()
    if (folder / "config.json").is_file():
        check_model_folder(folder)
        return shape_of_config(json.loads((folder / "config.json").read_text()), name=folder.name)
    last = source.rstrip("/").split("/")[-1].lower()
    for name in sorted(SHAPES, key=len, reverse=True):
        if last == name or last.startswith(f"{name}-"):
            return SHAPES[name]
    known = ", ".join(SHAPES)
    raise UserError(f"{key}: the sizes of {source} are not known; give {option} one of {known}, or its model folder")


def new_shape(model: ModelConfig) -> ModelShape:
    """Of `rla init-model`."""
    width = model.hidden_size // model.heads
    sizes = (model.hidden_size, model.intermediate_size, model.layers, model.heads, model.kv_heads, width)
    return _qwen("init", (*sizes, NEW_VOCABULARY), tied=True, third=True)


def shape_of_config(config: Mapping[str, Any], *, name: str) -> ModelShape:
    """Of a Hugging Face config.json of the Qwen2, Qwen3 or Llama kind. Raises UserError for a missing size."""
    try:
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        return ModelShape(
            name=name,
            hidden=hidden,
            intermediate=int(config["intermediate_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            key_heads=int(config.get("num_key_value_heads") or heads),
            width=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            bias=config.get("model_type") == "qwen2",
            head_norms=config.get("model_type") == "qwen3",
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{name}: config.json has no {error}; give a shape by name") from None
