"""Images as tokens of a vision-language model: how many, with which ids and positions, and prompts that contain them.

Two model types of transformers are supported, Qwen2.5-VL and Qwen3-VL. An image is scaled so that its sides are
multiples of patch x merge and its area lies between two bounds, then cut into patches. Each square of merge x merge
patches becomes one token: `<|vision_start|>`, as many `<|image_pad|>`, `<|vision_end|>`.

Positions (M-RoPE, arXiv:2409.12191): a text token has three equal ones; the tokens of an image share the first one and
count rows and columns in the others; text after it continues from its longer side.

Pixel values come from transformers' image processor on PIL and NumPy, so they are the same on every machine. They take
hundreds of times the memory of the files, so each pass makes its own and they are never stored. This module does not
import torch.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rla.config import Config
from rla.errors import UserError
from rla.models.load import model_json
from rla.pictures.prompts import Picture, PictureMessage, shows_images, without_placeholders
from rla.store.records import ImageSpan

if TYPE_CHECKING:
    from torch import Tensor

MODEL_TYPES = ("qwen2_5_vl", "qwen3_vl")
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
PNG = b"\x89PNG\r\n\x1a\n"
MAX_ASPECT = 200  # ratio of an image's sides; transformers refuses more
TOKENS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")

MAX_PIXELS = 1 << 26  # of an image before scaling; decoded it takes four bytes a pixel

Ints = npt.NDArray[np.int64]


def png_digest(png: bytes) -> str:
    """SHA-256 (hex) of a PNG file, which names the image everywhere."""
    return hashlib.sha256(png).hexdigest()


def png_size(png: bytes) -> tuple[int, int]:
    """(width, height) from the header of a PNG file. Raises ValueError for any other bytes."""
    if len(png) < 24 or not png.startswith(PNG) or png[12:16] != b"IHDR":
        raise ValueError("no PNG file")
    width, height = struct.unpack(">II", png[16:24])
    if not (0 < width < 1 << 31 and 0 < height < 1 << 31):
        raise ValueError(f"a PNG file of {width} x {height} pixels")
    return width, height


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionFormat:
    """`image`, `video`, `opening` and `closing` are ids of control tokens; `least` and `most` bound the pixels of a
    scaled image. `settings` are those of the image processor's file.
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
        """Ids that a reply must not contain, because they mean nothing without an image."""
        return tuple(sorted({self.image, self.video, self.opening, self.closing}))

    def grid(self, png: bytes, *, length: int | None = None) -> tuple[int, int]:
        """Rows and columns of an image's tokens. Raises ValueError unless `png` is a PNG file of a usable shape, and if
        it does not have `length` tokens.
        """
        width, height = png_size(png)
        if max(width, height) > MAX_ASPECT * min(width, height):
            raise ValueError(f"a picture of {width} x {height} pixels: one side is over {MAX_ASPECT} times the other")
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        side = self.patch * self.merge
        rows, columns = (pixels // side for pixels in smart_resize(height, width, side, self.least, self.most))
        if length not in (None, rows * columns):
            raise ValueError(f"a picture has {length} tokens, and {rows} x {columns} for this model")
        return rows, columns

    def tokens(self, png: bytes) -> list[int]:
        """The ids of an image. Raises ValueError as `grid` does."""
        rows, columns = self.grid(png)
        return [self.opening, *[self.image] * (rows * columns), self.closing]


def rope_positions(length: int, grids: Sequence[tuple[int, tuple[int, int]]]) -> tuple[Ints, int]:
    """(3, length) positions of a prompt's tokens, and the position of the token that follows them.

    `grids` has, per image in order, the index of its first `<|image_pad|>`, and its rows and columns.
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
    """The image format of a model folder or hub id; None for a text-only model.

    Raises UserError for a vision-language model of another type, and if its image processor is missing.
    """
    config = model_json(model, "config.json")
    if not config.get("vision_config"):
        return None
    if config.get("model_type") not in MODEL_TYPES:
        raise UserError(f"{model}: models of type {config.get('model_type')} are not known; take one of {MODEL_TYPES}")
    own, shared = PROCESSOR_FILES
    settings = model_json(model, own) or model_json(model, shared).get("image_processor", {})
    size = settings.get("size") or {}
    least = settings.get("min_pixels") or size.get("shortest_edge")
    most = settings.get("max_pixels") or size.get("longest_edge")
    if not (least and most):
        raise UserError(f"{model}: no {own} with the sizes of pictures; save the processor beside the weights")
    vision = config["vision_config"]
    try:
        image, video, opening, closing = (int(config[name]) for name in TOKENS)
        return VisionFormat(
            image=image,
            video=video,
            opening=opening,
            closing=closing,
            patch=int(settings.get("patch_size", vision["patch_size"])),
            merge=int(settings.get("merge_size", vision["spatial_merge_size"])),
            least=int(least),
            most=int(most),
            settings=settings,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{model}: config.json has no {error}; save the model again with transformers") from None


def vision_for(env: object, config: Config, model: Path | str) -> VisionFormat | None:
    """`load_vision` if the environment shows images, else None. Raises UserError for a text-only model."""
    if not shows_images(env, config):
        return None
    found = load_vision(model)
    if found is None:
        raise UserError(
            f"{model}: reads texts alone, and the environment {config.env.name} shows pictures; set "
            "model.architecture, or name a vision-language model in model.policy and model.reward"
        )
    return found


class PixelMaker:
    """The image processor of a model."""

    def __init__(self, vision: VisionFormat) -> None:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        self._processor: Any = Qwen2VLImageProcessorPil.from_dict(dict(vision.settings))

    def pixels(self, pngs: Sequence[bytes]) -> tuple[Tensor, Tensor]:
        """(patches, features) pixel values and (images, 3) grids: 1, rows and columns of patches.

        Raises UserError for a file that cannot be decoded.
        """
        made = self._processor(images=[decoded_picture(png) for png in pngs], return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"]


def decoded_picture(png: bytes) -> Any:
    """A PNG file as a PIL image. Raises UserError if it is damaged or too large."""
    from PIL import Image, UnidentifiedImageError

    try:
        picture = Image.open(io.BytesIO(png), formats=["PNG"])
        if picture.width * picture.height > MAX_PIXELS:
            raise UserError(f"a picture of {picture.width} x {picture.height} pixels; show smaller ones")
        return picture.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"a picture cannot be decoded ({error}); the environment must show PNG files") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedImage:
    """A PNG file, its SHA-256, and the span of its `<|image_pad|>` tokens among the ids of a prompt."""

    png: bytes
    digest: str
    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length

    def span(self) -> ImageSpan:
        return ImageSpan(digest=self.digest, start=self.start, length=self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTokens:
    """Token ids and the images among them. `turns` is set for a whole conversation."""

    ids: list[int]
    images: tuple[PlacedImage, ...] = ()
    turns: tuple[PictureMessage, ...] = ()

    def shifted(self, count: int) -> tuple[PlacedImage, ...]:
        """The images as placed when these ids follow `count` others."""
        return tuple(replace(one, start=one.start + count) for one in self.images)


def check_placed(ids: Sequence[int], images: Sequence[PlacedImage], *, image: int) -> None:
    """Raises ValueError unless the `image` tokens of a prompt are exactly its images' tokens, in order."""
    places = [place for place, token in enumerate(ids) if token == image]
    owned = [place for one in images for place in range(one.start, one.end)]
    if places != owned:
        raise ValueError(f"{len(places)} tokens of pictures, and {len(images)} pictures with {len(owned)} tokens")


def cache_keys(ids: Sequence[int], images: Sequence[PlacedImage]) -> Ints:
    """`ids`, with image tokens replaced by negative numbers derived from the image's content, so that two prompts share
    a prefix only if they show the same images.
    """
    keys = np.array(ids, dtype=np.int64)
    for one in images:
        content = hashlib.shake_256(one.digest.encode()).digest(4 * one.length)
        keys[one.start : one.end] = -1 - (np.frombuffer(content, dtype="<u4").astype(np.int64) >> 1)
    return keys


class PictureChat:
    """Encodes turns with images for the model of `vision`, as `ChatFormat` encodes turns of text."""

    def __init__(self, chat: Any, vision: VisionFormat) -> None:
        self._chat, self._vision = chat, vision  # `rla.llm.chat.ChatFormat`, whose package imports this module

    def first(self, messages: Sequence[PictureMessage]) -> PromptTokens:
        """A conversation up to the header of the assistant's reply. Raises ValueError if an image is broken."""
        template = self._chat.template(tuple(message.role for message in messages))
        opening, *frames = template.ids
        ids, images = list(opening), list[PlacedImage]()
        for message, frame, trim in zip(messages, frames, template.trims, strict=True):
            self._add(ids, images, message.role, _trimmed(message.parts, trim))
            ids += frame
        return PromptTokens(ids=ids, images=tuple(images), turns=tuple(messages))

    def next_turn(self, parts: Sequence[str | Picture], *, ended: bool) -> PromptTokens:
        """The ids that follow a reply, as in `ChatFormat.next_turn`."""
        template = self._chat.template(("user", "assistant", "user"))
        _, _, between, closing = template.ids
        ids, images = list(between[1:] if ended else between), list[PlacedImage]()
        self._add(ids, images, "user", _trimmed(parts, template.trims[-1]))
        return PromptTokens(ids=[*ids, *closing], images=tuple(images))

    def _add(self, ids: list[int], images: list[PlacedImage], role: str, parts: Sequence[str | Picture]) -> None:
        for part in parts:
            if isinstance(part, str):
                ids += self._text(role, part)
                continue
            own = self._vision.tokens(part.png)
            span = {"start": len(ids) + 1, "length": len(own) - 2}  # without <|vision_start|> and <|vision_end|>
            images.append(PlacedImage(png=part.png, digest=png_digest(part.png), **span))
            ids += own

    def _text(self, role: str, text: str) -> Sequence[int]:
        ids: Sequence[int] = self._chat.content_ids(role, without_placeholders(text))
        if not set(self._vision.banned).isdisjoint(ids):
            raise UserError(
                f"{self._chat.tokenizer.name_or_path}: its tokenizer makes tokens of pictures out of texts; mark "
                "<|image_pad|> and the like as special tokens in it"
            )
        return ids


def _trimmed(parts: Sequence[str | Picture], trim: tuple[bool, bool]) -> list[str | Picture]:
    """The parts of a turn as a template trims it (left, right). An image is not white space."""
    shown = list(parts)
    if trim[0] and shown and isinstance(shown[0], str):
        shown[0] = shown[0].lstrip()
    if trim[1] and shown and isinstance(shown[-1], str):
        shown[-1] = shown[-1].rstrip()
    return shown


def vllm_prompt(ids: Sequence[int], images: Sequence[PlacedImage], vision: VisionFormat | None) -> dict[str, Any]:
    """A prompt as vLLM takes it: one placeholder per image, which the engine expands itself, and the files, which the
    prefix cache tells apart by digest. Raises ValueError if tokens and images do not belong together.
    """
    if vision is None:
        if images:
            raise ValueError("the prompt has pictures, and the model reads texts alone")
        return {"prompt_token_ids": list(ids)}
    check_placed(ids, images, image=vision.image)
    if not images:
        return {"prompt_token_ids": list(ids)}
    collapsed: list[int] = []
    done = 0
    for one in images:
        collapsed += ids[done : one.start + 1]
        done = one.end
    return {
        "prompt_token_ids": [*collapsed, *ids[done:]],
        "multi_modal_data": {"image": [decoded_picture(one.png) for one in images]},
        "multi_modal_uuids": {"image": [one.digest for one in images]},
    }


def refuse_other_prompt(ids: Sequence[int], made: Sequence[int] | None, images: Sequence[PlacedImage]) -> None:
    """Raises UserError if vLLM made other tokens of a prompt with images than the stored ones."""
    if images and made is not None and list(made) != list(ids):
        raise UserError(
            f"generator.backend vllm: it made {len(made)} tokens of a prompt with {len(images)} pictures, and "
            f"{len(ids)} are stored; the image processor beside the weights is not vLLM's"
        )
