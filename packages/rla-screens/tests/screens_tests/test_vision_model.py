"""A small new vision-language model distinguishes positions and shades before it has learnt anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rla_screens.vision_model import VisionModel

from rla.config.sections import ModelConfig
from rla.models.init import init_model, new_tokenizer
from rla.models.load import load_model
from rla.pictures.encoder import image_features, vision_encoder
from rla.pictures.vision import PixelMaker, VisionFormat, load_vision
from tests.seeing import WORDS, png_of


def made(folder: Path, kind: Any) -> Path:
    vision = VisionModel(kind=kind, hidden_size=16, layers=2, heads=2, patch_size=4, most_tokens=64)
    sizes = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 48, "context": 256}
    config = ModelConfig(**sizes, own=vision)
    folder.mkdir()
    init_model(folder, tokenizer=new_tokenizer(WORDS, context=config.context), config=config, seed=3)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("models") / "new", "qwen3-vl")


def vision_of(folder: Path) -> VisionFormat:
    found = load_vision(folder)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["qwen2.5-vl", "qwen3-vl"])
def test_a_new_model_is_small_and_depends_on_the_seed_alone(kind: str, tmp_path: Path) -> None:
    first, again = (load_model(made(tmp_path / name, kind)) for name in ("first", "again"))
    assert sum(parameter.numel() for parameter in first.parameters()) < 2_000_000
    assert vision_encoder(first).dtype is torch.float32
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    assert len(vision_of(tmp_path / "again").banned) == 4


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="hidden_size: must be a multiple of 4"):
        VisionModel(hidden_size=10, heads=4)


def test_a_new_encoder_tells_the_places_of_a_white_picture_apart(model: Path) -> None:
    pixels, grids = PixelMaker(vision_of(model)).pixels([png_of((255, 255, 255), width=64, height=64)])
    with torch.no_grad():
        (found,) = image_features(load_model(model), pixels, grids)
    rows = found.embeds[-16:].reshape(2, 8, -1)  # the lower quarter, where no corner is
    between = (rows[0, 0] - rows[0, 4]).norm()
    assert between > 0.2 * rows[0, 0].norm()  # 0.07 with positions drawn at random


def test_a_new_encoder_takes_white_for_nothing_and_notices_the_grey_of_a_button(model: Path) -> None:
    encoder, pixels = vision_encoder(load_model(model)), PixelMaker(vision_of(model)).pixels
    with torch.no_grad():
        white, grey = (encoder.patch_embed(pixels([png_of(shade)])[0])[-1] for shade in ((255,) * 3, (239,) * 3))
    assert white.abs().max() < 1e-3
    assert grey.norm() > 0.5 * encoder.pos_embed.weight[0].norm()
