"""What a vision-language model makes of a picture: how many tokens stand for it, which ids they have, how they lie.

Of the models of transformers those of the kinds Qwen2.5-VL and Qwen3-VL are known. A picture is scaled so that its
sides are multiples of patch x merge and its area lies between two bounds, and is cut into patches. Each square of merge
x merge patches becomes one token: `<|vision_start|>`, as many `<|image_pad|>`, `<|vision_end|>`. Importing this module
imports no torch.

Positions (M-RoPE, arXiv:2409.12191): a text token has three equal ones; the tokens of a picture share the first one and
count rows and columns in the others; what follows begins behind the longer side.

Pixel values come from transformers' image processor on PIL and NumPy, and are the same on every machine. They take
hundreds of times the memory of the files, so they are made where they are used and never stored.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rla.errors import UserError
from rla.models.load import folder_of
from rla.store.images import png_size

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("qwen2_5_vl", "qwen3_vl")
SETTINGS, WHOLE_SETTINGS = "preprocessor_config.json", "processor_config.json"
STEEPEST = 200  # of the sides of a picture: transformers refuses more
TOKENS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
NEITHER = (0, 0)

Ints = npt.NDArray[np.int64]
MOST_PIXELS = 1 << 26  # of a picture before it is scaled: decoded it takes four bytes a pixel


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionFormat:
    """`image`, `video`, `opening`, `closing`: ids of control tokens. `least` and `most`: pixels of a scaled picture.
    `settings`: of the image processor, as its file has them.
    """

    image: int
    video: int
    opening: int
    closing: int
    patch: int
    merge: int
    least: int
    most: int
    settings: dict[str, Any]

    @property
    def banned(self) -> tuple[int, ...]:
        """The ids that no reply may hold: without a picture behind it such a token stands for nothing."""
        return tuple(sorted({self.image, self.video, self.opening, self.closing}))

    def grid(self, png: bytes) -> tuple[int, int]:
        """Rows and columns of a picture's tokens. Raises ValueError for bytes that are no PNG file, or one that is too
        long and narrow.
        """
        width, height = png_size(png)
        if max(width, height) > STEEPEST * min(width, height):
            raise ValueError(f"a picture of {width} x {height} pixels: one side is over {STEEPEST} times the other")
        side = self.patch * self.merge
        rows, columns = scaled_sides(height, width, side=side, least=self.least, most=self.most)
        return rows // side, columns // side

    def tokens(self, png: bytes) -> list[int]:
        """The ids that stand for a picture. Raises ValueError as `grid` does."""
        rows, columns = self.grid(png)
        return [self.opening, *[self.image] * (rows * columns), self.closing]


def scaled_sides(height: int, width: int, *, side: int, least: int, most: int) -> tuple[int, int]:
    """The size that a picture is brought to: transformers' `smart_resize`."""
    rows, columns = round(height / side) * side, round(width / side) * side
    if rows * columns > most:
        shrink = math.sqrt(height * width / most)
        rows = max(side, math.floor(height / shrink / side) * side)
        columns = max(side, math.floor(width / shrink / side) * side)
    elif rows * columns < least:
        grow = math.sqrt(least / (height * width))
        rows, columns = (math.ceil(length * grow / side) * side for length in (height, width))
    return rows, columns


def rope_positions(length: int, grids: Sequence[tuple[int, tuple[int, int]]]) -> tuple[Ints, int]:
    """(3, length) positions of tokens among which pictures stand, and the position of the token that follows.

    `grids`: per picture the index of its first `<|image_pad|>`, and rows and columns, in order.
    """
    found = np.empty((3, length), dtype=np.int64)
    done = place = 0
    for start, (rows, columns) in grids:
        found[:, done:start] = place + np.arange(start - done)
        place += start - done
        done = start + rows * columns
        found[0, start:done] = place
        found[1, start:done] = place + np.repeat(np.arange(rows), columns)
        found[2, start:done] = place + np.tile(np.arange(columns), rows)
        place += max(rows, columns)
    found[:, done:] = place + np.arange(length - done)
    return found, place + length - done


def load_vision(model: Path | str) -> VisionFormat | None:
    """What the model of a folder (or hub id) makes of pictures; None for one that sees none.

    Raises UserError for a vision-language model of another kind, and where its image processor is missing.
    """
    config = _read(model, "config.json")
    if not config.get("vision_config"):
        return None
    if config.get("model_type") not in KINDS:
        raise UserError(f"{model}: models of type {config.get('model_type')} are not known; take one of {KINDS}")
    whole = _read(model, WHOLE_SETTINGS)
    settings = _read(model, SETTINGS) or whole.get("image_processor", {})
    size = settings.get("size") or {}
    least = settings.get("min_pixels") or size.get("shortest_edge")
    most = settings.get("max_pixels") or size.get("longest_edge")
    if not (least and most):
        raise UserError(f"{model}: no {SETTINGS} with the sizes of pictures; save the processor beside the weights")
    vision = config["vision_config"]
    try:
        ids = [int(config[name]) for name in TOKENS]
        merge = int(settings.get("merge_size", vision["spatial_merge_size"]))
        patch = int(settings.get("patch_size", vision["patch_size"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{model}: config.json has no {error}; save the model again with transformers") from None
    image, video, opening, closing = ids
    return VisionFormat(
        image=image,
        video=video,
        opening=opening,
        closing=closing,
        patch=patch,
        merge=merge,
        least=int(least),
        most=int(most),
        settings=settings,
    )


def vision_for(model: Path | str, *, environment: str | None, shows: bool) -> VisionFormat | None:
    """`load_vision` where an environment `shows` pictures, else None. UserError for a model that reads texts alone."""
    found = load_vision(model) if shows else None
    if shows and found is None:
        raise UserError(
            f"{model}: reads texts alone, and the environment {environment} shows pictures; set model.vision.kind, or "
            "name a vision-language model in model.policy and model.reward"
        )
    return found


def banned_tokens(model: Path | str) -> tuple[int, ...]:
    """The ids that no reply of a model may hold: those of pictures, of a vision-language model."""
    vision = load_vision(model)
    return () if vision is None else vision.banned


def _read(model: Path | str, name: str) -> dict[str, Any]:
    """A JSON file of a model; empty where it has none."""
    folder = folder_of(model)
    if folder is None:
        from transformers.utils import cached_file

        found = cached_file(str(model), name, _raise_exceptions_for_missing_entries=False)
        path = None if found is None else Path(found)
    else:
        path = folder / name
    if path is None or not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise UserError(f"{path}: not valid JSON; write the model again") from None
    return content if isinstance(content, dict) else {}


class PixelMaker:
    """The image processor of a model."""

    def __init__(self, vision: VisionFormat) -> None:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        self._vision = vision
        self._processor: Any = Qwen2VLImageProcessorPil.from_dict(dict(vision.settings))

    def pixels(self, pngs: Sequence[bytes]) -> tuple[Tensor, Tensor]:
        """(patches, features) pixel values and (pictures, 3) grids: 1, rows and columns of patches.

        Raises UserError for a file that cannot be decoded.
        """
        made = self._processor(images=[decoded_picture(png) for png in pngs], return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"]


def decoded_picture(png: bytes) -> Any:
    """The picture of a PNG file, as PIL has it. Raises UserError for damage, and for one that is too large."""
    from PIL import Image, UnidentifiedImageError

    try:
        picture = Image.open(io.BytesIO(png), formats=["PNG"])
        if picture.width * picture.height > MOST_PIXELS:
            raise UserError(f"a picture of {picture.width} x {picture.height} pixels; show smaller ones")
        return picture.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"a picture cannot be decoded ({error}); the environment must show PNG files") from None
