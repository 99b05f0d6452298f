"""Pixel values of pictures, by transformers' image processor on PIL and NumPy: the same on every machine.

They take hundreds of times the memory of the files, so they are made where they are used and never stored.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rla.errors import UserError
from rla.models.vision import VisionFormat

if TYPE_CHECKING:
    from torch import Tensor

MOST_PIXELS = 1 << 26  # of a picture before it is scaled: decoded it takes four bytes a pixel


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
