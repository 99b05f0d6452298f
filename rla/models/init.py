"""A small new language model (Qwen3 architecture) with a tokenizer of its own, as a Hugging Face folder.

With `model.vision.kind` it also sees pictures: the same text model with the vision tower of a Qwen model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.config.sections import ModelConfig
from rla.errors import UserError
from rla.models.tokenizer import build_exact_tokenizer, build_tokenizer
from rla.models.vision import SETTINGS
from rla.store.removing import whole_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

# At width 96 with tied embeddings: logits of a fresh model have a standard deviation of about one half.
INITIALIZER_RANGE = 0.05
# As in the tokenizers of Qwen: others who load the model look for these names.
OPENING, CLOSING, IMAGE, VIDEO = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"
PICTURE = f"{OPENING}{IMAGE}{CLOSING}"
# What others send as parts of a message is printed as `rla` lays it out.
CONTENT = (
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}{{ '" + PICTURE + "' }}{% endif %}"
    "{% endfor %}{% endif %}"
)
VISION_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<' + message['role'] + '>' }}" + CONTENT + "{{ '<end>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
MERGE, TEMPORAL = 2, 2
FASTEST = 3.0  # waves double so often from the slowest, half a turn over the picture, to the fastest
LOUD = 16.0  # what the patches' projection makes of pixel values that differ from white by 1
SIDE = 16  # the learnt positions of Qwen3-VL are a square of so many, interpolated to the picture's size
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}


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
    """Write `new_model` and its tokenizer to an empty folder."""
    new_model(tokenizer, config=config, seed=seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if config.vision.kind != "none":
        write_processor(folder, config)


def new_model(tokenizer: PreTrainedTokenizerFast, *, config: ModelConfig, seed: int) -> PreTrainedModel:
    """An untrained fp32 model for the tokenizer's ids; a model that sees gets the control tokens of pictures.

    Raises UserError if the sizes in `config` do not fit together.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # as in `load_model`
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
    return model.float()


def _check(config: ModelConfig) -> None:
    if config.hidden_size % (2 * config.heads):
        raise UserError("model.hidden_size must be a multiple of 2 * model.heads: rotary heads have an even width")
    if config.heads > 1 and config.heads % 2:
        raise UserError("model.heads must be even, or 1: two heads share keys and values")


def _sizes(config: ModelConfig, *, vocabulary: int, pad: int, bos: int, end: int) -> dict[str, Any]:
    """What transformers' configuration of the text model is made of."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": max(1, config.heads // 2),
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


def add_vision_tokens(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    """Control tokens for pictures, behind all others; their ids by the names of a model's config."""
    names = {
        "vision_start_token_id": OPENING,
        "vision_end_token_id": CLOSING,
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
    }
    tokenizer.add_special_tokens(
        {"additional_special_tokens": list(names.values())}, replace_extra_special_tokens=False
    )
    tokenizer.chat_template = VISION_TEMPLATE
    return {name: int(tokenizer.convert_tokens_to_ids(text)) for name, text in names.items()}


def new_vision_model(config: ModelConfig, text: dict[str, Any], ids: dict[str, int]) -> PreTrainedModel:
    """The model with random weights. `text`: parameters of its text model. UserError for sizes that do not fit."""
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
    )

    vision = config.vision
    if vision.hidden_size % (4 * vision.heads):
        raise UserError(
            "model.vision.hidden_size must be a multiple of 4 * model.vision.heads: rows and columns turn it"
        )
    half = text["head_dim"] // 2
    if half < 3:
        raise UserError("model.hidden_size / model.heads must be at least 6: three positions turn a head")
    rest = half // 3
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [half - 2 * rest, rest, rest]}
    common = {
        "depth": vision.layers,
        "hidden_size": vision.hidden_size,
        "intermediate_size": 2 * vision.hidden_size,
        "num_heads": vision.heads,
        "patch_size": vision.patch_size,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": TEMPORAL,
        "out_hidden_size": config.hidden_size,
        "initializer_range": text["initializer_range"],
    }
    whole = {**ids, "tie_word_embeddings": True, "initializer_range": text["initializer_range"]}
    if vision.kind == "qwen3-vl":
        own = {"num_position_embeddings": SIDE**2, "deepstack_visual_indexes": [max(0, vision.layers // 2 - 1)]}
        text = {**text, "rope_parameters": {**rope, "mrope_interleaved": True}}
        model = Qwen3VLForConditionalGeneration(
            Qwen3VLConfig(text_config=text, vision_config={**common, **own}, **whole)
        )
        begin_with_places(model.base_model.visual)
        return model
    own = {"window_size": 4 * MERGE * vision.patch_size, "fullatt_block_indexes": [vision.layers - 1]}
    text = {name: value for name, value in text.items() if name != "head_dim"} | {"rope_parameters": rope}
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(text_config=text, vision_config={**common, **own}, **whole)
    )


def begin_with_places(tower: Any) -> None:
    """Let a new tower tell places apart from its first step on; otherwise it has to learn that from many pictures.

    Learnt positions start as sine and cosine waves over rows and columns, as those of masked autoencoders do
    (arXiv:2111.06377). A white patch starts as nothing but its place, whatever its projection; what differs from white
    is heard at once, since pages draw a button in a grey that is one sixteenth darker.
    """
    import torch

    places = tower.pos_embed.weight
    side, width = math.isqrt(places.shape[0]), places.shape[1]
    speeds = math.pi / 2 * 2.0 ** torch.linspace(0, FASTEST, width // 4)
    turns = torch.linspace(-1, 1, side)[:, None] * speeds
    waves = torch.cat([turns.sin(), turns.cos()], dim=1)
    whole = torch.cat([waves[:, None].expand(-1, side, -1), waves[None].expand(side, -1, -1)], dim=-1)
    with torch.no_grad():
        places.copy_(whole.reshape(side * side, width))
        patches = tower.patch_embed.proj.weight
        patches.mul_(LOUD / (patches.std() * math.sqrt(patches[0].numel())))
        white = (1 - torch.tensor(CLIP["image_mean"])) / torch.tensor(CLIP["image_std"])
        tower.patch_embed.proj.bias.copy_(-patches.sum(dim=(2, 3, 4)) @ white)


def write_processor(folder: Path, config: ModelConfig) -> None:
    """The settings of the image processor, and those of the video processor, which others ask for beside it."""
    side = MERGE * config.vision.patch_size
    settings = {
        "do_convert_rgb": True,
        "do_resize": True,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        **CLIP,
        "resample": 3,
        "patch_size": config.vision.patch_size,
        "temporal_patch_size": TEMPORAL,
        "merge_size": MERGE,
        "size": {"shortest_edge": side**2, "longest_edge": config.vision.most_tokens * side**2},
    }
    processor = "Qwen3VLProcessor" if config.vision.kind == "qwen3-vl" else "Qwen2_5_VLProcessor"
    video = "Qwen3VLVideoProcessor" if config.vision.kind == "qwen3-vl" else "Qwen2VLVideoProcessor"
    files = {
        SETTINGS: {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": processor, **settings},
        "video_preprocessor_config.json": {"video_processor_type": video, "processor_class": processor, **settings},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
