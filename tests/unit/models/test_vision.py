"""What a picture becomes, against transformers' own image processor and positions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rla.errors import UserError
from rla.models.load import load_model
from rla.pictures.encoder import image_features
from rla.pictures.vision import (
    PixelMaker,
    VisionFormat,
    decoded_picture,
    load_vision,
    rope_positions,
)
from tests.seeing import KINDS, png_of, small_model


def vision_of(kind: str) -> VisionFormat:
    found = load_vision(small_model(kind))
    assert found is not None
    return found


@pytest.mark.parametrize("size", [(40, 28), (7, 90), (300, 200), (16, 16), (5, 900), (900, 700)])
def test_as_many_tokens_as_features(size: tuple[int, int]) -> None:
    vision, model = vision_of("qwen3-vl"), load_model(small_model("qwen3-vl"))
    png = png_of("red", width=size[0], height=size[1])
    rows, columns = vision.grid(png)
    pixels, grids = PixelMaker(vision).pixels([png])
    assert grids.tolist() == [[1, rows * vision.merge, columns * vision.merge]]
    (features,) = image_features(model, pixels, grids)
    assert len(features.embeds) == rows * columns == vision.tokens(png).count(vision.image)
    assert len(features.deepstack) == 1 and features.deepstack[0].shape == features.embeds.shape


@pytest.mark.parametrize("kind", KINDS)
def test_positions_are_those_of_transformers(kind: str) -> None:
    vision, model = vision_of(kind), load_model(small_model(kind))
    pictures = [png_of("red"), png_of("blue", width=20, height=70)]
    ids = [7, 8, *vision.tokens(pictures[0]), 9, *vision.tokens(pictures[1]), 5, 6]
    first, second = ids.index(vision.image), len(ids) - 3 - vision.tokens(pictures[1]).count(vision.image)
    grids = [(first, vision.grid(pictures[0])), (second, vision.grid(pictures[1]))]
    found, following = rope_positions(len(ids), grids)
    tensor = torch.tensor([ids])
    _, shapes = PixelMaker(vision).pixels(pictures)
    wanted, delta = model.base_model.get_rope_index(tensor, (tensor == vision.image).int(), image_grid_thw=shapes)
    assert found.tolist() == wanted[:, 0].tolist()
    assert following == len(ids) + int(delta)


def test_texts_alone_count_tokens() -> None:
    found, following = rope_positions(5, [])
    assert np.array_equal(found, np.tile(np.arange(5), (3, 1))) and following == 5


def test_a_text_model_sees_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    assert load_vision(tmp_path) is None


def test_other_kinds_and_a_missing_processor_are_refused(tmp_path: Path) -> None:
    config = json.loads((small_model("qwen3-vl") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="preprocessor_config"):
        load_vision(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "llava"}))
    with pytest.raises(UserError, match="llava"):
        load_vision(tmp_path)


def test_broken_and_odd_pictures_are_refused() -> None:
    vision, png = vision_of("qwen3-vl"), png_of("red")
    for broken in (b"", b"GIF89a", png[:20]):
        with pytest.raises(ValueError, match="PNG"):
            vision.grid(broken)
    with pytest.raises(ValueError, match="200 times"):
        vision.grid(png_of("red", width=900, height=4))
    with pytest.raises(UserError, match="cannot be decoded"):
        decoded_picture(png[:60])
