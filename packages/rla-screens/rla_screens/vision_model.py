"""A small new vision-language model: the text model of `rla.models.init` with the vision encoder of a Qwen model.

`model.architecture: vision` makes one, with the parameters in `model.own`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rla.config.schema import ranged
from rla.config.sections import ModelConfig
from rla.errors import UserError
from rla.models.init import text_sizes

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

# The names of Qwen's tokenizers, which other software looks for.
OPENING, CLOSING, IMAGE, VIDEO = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"
PICTURE = f"{OPENING}{IMAGE}{CLOSING}"
# Lays out message parts sent by other software in the same way as `rla`.
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
MAX_OCTAVE = 3.0  # log2 of the highest frequency of the position waves, over half a turn across the image
PATCH_SCALE = 16.0  # output of the patch projection for pixel values that differ from white by 1
SIDE = 16  # Qwen3-VL learns a square of so many positions and interpolates it to the size of the image
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionModel:
    """The vision encoder of a small new model."""

    kind: Literal["qwen2.5-vl", "qwen3-vl"] = "qwen3-vl"  # architecture of transformers
    # width of the encoder; raise it if a larger model still misreads pictures
    hidden_size: int = ranged(64, least=8, most=65536)
    layers: int = ranged(4, least=1, most=1024)  # blocks of the encoder; as for hidden_size
    # attention heads of the encoder; hidden_size must be a multiple of 4 * heads
    heads: int = ranged(4, least=1, most=1024)
    # pixels; a token stands for 2 x 2 patches. Lower it if details are smaller than that
    patch_size: int = ranged(14, least=2, most=256)
    # of a picture; larger ones are scaled down. Lower it to save memory and context
    most_tokens: int = ranged(256, least=1, most=1 << 16)

    def __post_init__(self) -> None:
        if self.hidden_size % (4 * self.heads):
            raise ValueError("hidden_size: must be a multiple of 4 * heads, because rows and columns turn it")

    def fill_model(self, folder: Path, *, tokenizer: PreTrainedTokenizerFast, config: ModelConfig, seed: int) -> None:
        """Write an untrained fp32 model, its tokenizer with image tokens, and its image processor to an empty folder.

        Raises UserError if the sizes in `config` do not fit together.
        """
        import torch
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        ids = _add_vision_tokens(tokenizer)
        sizes = text_sizes(tokenizer, config)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = _new_model(self, sizes, ids)
        model.float().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        _write_processor(folder, self)


def _add_vision_tokens(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    """Add the image control tokens after all others. Returns their ids by the names in a model's config."""
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


def _new_model(vision: VisionModel, text: dict[str, Any], ids: dict[str, int]) -> PreTrainedModel:
    """A model with random weights. `text` are the sizes of its language model."""
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
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
        "out_hidden_size": text["hidden_size"],
        "initializer_range": text["initializer_range"],
    }
    whole = {**ids, "tie_word_embeddings": True, "initializer_range": text["initializer_range"]}
    if vision.kind == "qwen3-vl":
        own = {"num_position_embeddings": SIDE**2, "deepstack_visual_indexes": [max(0, vision.layers // 2 - 1)]}
        text = {**text, "rope_parameters": {**rope, "mrope_interleaved": True}}
        model = Qwen3VLForConditionalGeneration(
            Qwen3VLConfig(text_config=text, vision_config={**common, **own}, **whole)
        )
        _encode_positions(model.base_model.visual)
        return model
    own = {"window_size": 4 * MERGE * vision.patch_size, "fullatt_block_indexes": [vision.layers - 1]}
    text = {name: value for name, value in text.items() if name != "head_dim"} | {"rope_parameters": rope}
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(text_config=text, vision_config={**common, **own}, **whole)
    )


def _encode_positions(encoder: Any) -> None:
    """Let a new encoder distinguish positions from its first step, which it would otherwise learn from many images.

    Learnt positions start as sine and cosine waves over rows and columns, as in masked autoencoders (arXiv:2111.06377).
    A white patch starts as its position alone; any difference from white counts at once, because pages draw a button in
    a grey that is one sixteenth darker.
    """
    import torch

    places = encoder.pos_embed.weight
    side, width = math.isqrt(places.shape[0]), places.shape[1]
    speeds = math.pi / 2 * 2.0 ** torch.linspace(0, MAX_OCTAVE, width // 4)
    turns = torch.linspace(-1, 1, side)[:, None] * speeds
    waves = torch.cat([turns.sin(), turns.cos()], dim=1)
    whole = torch.cat([waves[:, None].expand(-1, side, -1), waves[None].expand(side, -1, -1)], dim=-1)
    with torch.no_grad():
        places.copy_(whole.reshape(side * side, width))
        patches = encoder.patch_embed.proj.weight
        patches.mul_(PATCH_SCALE / (patches.std() * math.sqrt(patches[0].numel())))
        white = (1 - torch.tensor(CLIP["image_mean"])) / torch.tensor(CLIP["image_std"])
        encoder.patch_embed.proj.bias.copy_(-patches.sum(dim=(2, 3, 4)) @ white)


def _write_processor(folder: Path, vision: VisionModel) -> None:
    """Write the settings of the image processor, and of the video processor that transformers asks for with it."""
    side = MERGE * vision.patch_size
    settings = {
        "do_convert_rgb": True,
        "do_resize": True,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        **CLIP,
        "resample": 3,
        "patch_size": vision.patch_size,
        "temporal_patch_size": TEMPORAL,
        "merge_size": MERGE,
        "size": {"shortest_edge": side**2, "longest_edge": vision.most_tokens * side**2},
    }
    processor = "Qwen3VLProcessor" if vision.kind == "qwen3-vl" else "Qwen2_5_VLProcessor"
    video = "Qwen3VLVideoProcessor" if vision.kind == "qwen3-vl" else "Qwen2VLVideoProcessor"
    files = {
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": processor,
            **settings,
        },
        "video_preprocessor_config.json": {"video_processor_type": video, "processor_class": processor, **settings},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
