"""Small vision-language models and pictures for tests."""

from __future__ import annotations

import io
import random
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

from PIL import Image

from rla.config.sections import ModelConfig, VisionConfig
from rla.models.init import new_tokenizer
from rla.pictures.new_model import fill_vision_model

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


def small_config(kind: str, *, context: int = 256) -> ModelConfig:
    return ModelConfig(
        hidden_size=32,
        layers=2,
        heads=2,
        intermediate_size=48,
        context=context,
        vision=VisionConfig(kind=kind, hidden_size=16, layers=2, heads=2, patch_size=4, most_tokens=64),
    )


@lru_cache
def small_model(kind: str) -> Path:
    """A model folder, made once for all tests of a process."""
    return new_vision_model(Path(mkdtemp(prefix="rla-test-")) / kind, small_config(kind))


def new_vision_model(folder: Path, config: ModelConfig) -> Path:
    folder.mkdir(parents=True)
    tokenizer = new_tokenizer(WORDS, context=config.context, exact=False)
    fill_vision_model(folder, tokenizer=tokenizer, config=config, seed=3)
    return folder
