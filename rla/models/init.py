"""A small new language model (Qwen3 architecture) with a tokenizer of its own, as a Hugging Face folder.

With `model.vision.kind` it also sees pictures (`rla.models.init_vision`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.config.sections import ModelConfig
from rla.errors import UserError
from rla.models.exact_tokenizer import build_exact_tokenizer
from rla.models.init_vision import add_vision_tokens, new_vision_model, write_processor
from rla.models.tokenizer import build_tokenizer
from rla.store.atomic import whole_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

# At width 96 with tied embeddings: logits of a fresh model have a standard deviation of about one half.
INITIALIZER_RANGE = 0.05


def init_model(
    folder: Path,
    *,
    texts: Iterable[str],
    config: ModelConfig,
    seed: int,
    phrases: Sequence[str] = (),
    exact: bool = False,
) -> None:
    """Write an untrained fp32 model and a tokenizer that covers `texts`; the same seed gives the same
    weights. `exact`: line ends, spaces and capitals matter, and `phrases` have no use.

    The folder appears whole or not at all. Raises UserError when it exists already or when the sizes do not
    fit.
    """
    with whole_folder(folder) as partial:
        tokenizer = new_tokenizer(texts, phrases=phrases, exact=exact, context=config.context)
        fill_model(partial, tokenizer=tokenizer, config=config, seed=seed)


def new_tokenizer(
    texts: Iterable[str], *, context: int, phrases: Sequence[str] = (), written: Iterable[str] = (), exact: bool
) -> PreTrainedTokenizerFast:
    """The tokenizer of a new model. `written`: texts that it has to know, which do not change how it takes the others.
    An exact one knows every text, and neither they nor `phrases` have any use.
    """
    if exact:
        return build_exact_tokenizer(texts, context=context)
    return build_tokenizer(texts, context=context, phrases=phrases, written=written)


def fill_model(folder: Path, *, tokenizer: PreTrainedTokenizerFast, config: ModelConfig, seed: int) -> None:
    """`init_model` into an empty folder that is there, with a tokenizer that is ready."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # as where models are loaded
    _check(config)
    sees = config.vision.kind != "none"
    ids = add_vision_tokens(tokenizer) if sees else {}
    sizes = _sizes(
        config,
        vocabulary=len(tokenizer),
        pad=int(tokenizer.pad_token_id),
        bos=int(tokenizer.bos_token_id),
        end=int(tokenizer.eos_token_id),
    )
    model: PreTrainedModel
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = new_vision_model(config, sizes, ids) if sees else Qwen3ForCausalLM(Qwen3Config(**sizes))
    model.float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if sees:
        write_processor(folder, config)


def _check(config: ModelConfig) -> None:
    if config.hidden_size % (2 * config.heads):
        raise UserError("model.hidden_size must be a multiple of 2 * model.heads: rotary heads have an even width")
    if config.heads % config.kv_heads:
        raise UserError("model.heads must be a multiple of model.kv_heads")


def _sizes(config: ModelConfig, *, vocabulary: int, pad: int, bos: int, end: int) -> dict[str, Any]:
    """What transformers' configuration of the text model is made of."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.hidden_size // config.heads,
        "max_position_embeddings": config.context,
        "initializer_range": INITIALIZER_RANGE,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "tie_word_embeddings": True,
        "pad_token_id": pad,
        "bos_token_id": bos,
        "eos_token_id": end,
        "dtype": "float32",
    }
