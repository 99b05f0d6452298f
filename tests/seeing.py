"""Small vision-language models and pictures for tests."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from PIL import Image

from rla.config.sections import ModelConfig
from rla.models.init import init_model, new_tokenizer, text_sizes

CONTROL = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
}
TEMPLATE = (
    "{% for message in messages %}{{ '<' + message['role'] + '>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}"
    "{% endfor %}{% endif %}{{ '<end>' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
KINDS = ("qwen2.5-vl", "qwen3-vl")
COLOURS = {"red": (220, 30, 30), "green": (30, 180, 40), "blue": (30, 60, 220)}
WORDS = ("which colour is it ? go now look", *COLOURS)


def png_of(colour: tuple[int, int, int] | str, *, width: int = 40, height: int = 28) -> bytes:
    """A picture of one colour, with a corner that tells its sides apart."""
    shade = COLOURS[colour] if isinstance(colour, str) else colour
    picture = Image.new("RGB", (width, height), shade)
    picture.paste((250, 250, 250), (0, 0, width // 3, height // 4))
    sink = io.BytesIO()
    picture.save(sink, format="PNG")
    return sink.getvalue()


def noise_png(seed: str, *, side: int) -> bytes:
    """A picture that compresses badly."""
    sink = io.BytesIO()
    Image.frombytes("RGB", (side, side), random.Random(seed).randbytes(3 * side * side)).save(sink, format="PNG")
    return sink.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeeingModel:
    """`model.architecture: seeing`: an untrained vision-language model."""

    kind: str = "qwen3-vl"
    hidden_size: int = 16  # of the vision encoder, as all that follow
    heads: int = 2
    patch_size: int = 4
    most_tokens: int = 64

    def fill_model(self, folder: Path, *, tokenizer: Any, config: ModelConfig, seed: int) -> None:
        import torch
        import transformers

        tokenizer.add_special_tokens(
            {"additional_special_tokens": list(CONTROL.values())}, replace_extra_special_tokens=False
        )
        tokenizer.chat_template = TEMPLATE
        text = text_sizes(tokenizer, config)
        half = text["head_dim"] // 2
        text["rope_parameters"]["mrope_section"] = [half - 2 * (half // 3), half // 3, half // 3]
        vision = {
            "depth": 2,
            "hidden_size": self.hidden_size,
            "intermediate_size": 2 * self.hidden_size,
            "num_heads": self.heads,
            "patch_size": self.patch_size,
            "out_hidden_size": config.hidden_size,
        }
        if self.kind == "qwen3-vl":
            name, own = "Qwen3VL", {"num_position_embeddings": 256, "deepstack_visual_indexes": [0]}
            text["rope_parameters"]["mrope_interleaved"] = True
        else:
            name, own = "Qwen2_5_VL", {"window_size": 8 * self.patch_size, "fullatt_block_indexes": [1]}
            del text["head_dim"]
        ids = {key: int(tokenizer.convert_tokens_to_ids(token)) for key, token in CONTROL.items()}
        settings = getattr(transformers, f"{name}Config")(
            text_config=text, vision_config=vision | own, tie_word_embeddings=True, **ids
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            getattr(transformers, f"{name}ForConditionalGeneration")(settings).float().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        side = 2 * self.patch_size
        processor = {
            "patch_size": self.patch_size,
            "size": {"shortest_edge": side**2, "longest_edge": self.most_tokens * side**2},
        }
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))


@lru_cache
def small_model(kind: str) -> Path:
    """A model folder, made once for all tests of a process."""
    sizes = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 48}
    config = ModelConfig(**sizes, context=256, own=SeeingModel(kind=kind))
    return new_vision_model(Path(mkdtemp(prefix="rla-test-")) / kind, config)


def new_vision_model(folder: Path, config: ModelConfig) -> Path:
    folder.mkdir(parents=True)
    init_model(folder, tokenizer=new_tokenizer(WORDS, context=config.context), config=config, seed=3)
    return folder
