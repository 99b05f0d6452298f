"""The tensor side of a vision-language model: features of images, and hidden states of the tokens around them.

Vision encoder and language model are called separately, because an engine meets the tokens of an image in any pass, and
a trainer packs many sequences into one row. Only the language model uses our attention; the vision encoder keeps its
own.

A forward pass needs pixel values and rotary positions in addition to token ids (`VisionCollator` for training,
`VisionPasses` for sampling). Pixel values are made for one pass from the PNG files of its images and dropped after it;
an image that several sequences of a pass show is encoded once. In training each text has the positions that it would
have alone: a branch continues from its anchor. The images of a stage are stored once each in a ZIP file, by digest.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rla.pictures.vision import (
    Ints,
    PixelMaker,
    PlacedImage,
    VisionFormat,
    cache_keys,
    check_placed,
    rope_positions,
)
from rla.store.records import ImageSpan

ENCODER_ATTENTION = "sdpa"
KEPT_BYTES = 1 << 28  # of image features that an engine keeps
ENCODED_AT_ONCE = 16  # images


class _ImageFeatures(NamedTuple):
    """Of n image tokens: `embeds` (n, H) replaces token embeddings; DeepStack (Qwen3-VL) adds one `deepstack` entry
    (n, H) to the output of each of the first layers.
    """

    embeds: Tensor
    deepstack: tuple[Tensor, ...]

    @property
    def bytes(self) -> int:
        return sum(one.nbytes for one in (self.embeds, *self.deepstack))

    def between(self, low: int, high: int) -> _ImageFeatures:
        """Those of the tokens from `low` to `high`."""
        return _ImageFeatures(self.embeds[low:high], tuple(one[low:high] for one in self.deepstack))


def _concatenated(parts: Sequence[_ImageFeatures]) -> _ImageFeatures:
    embeds, layers = zip(*parts, strict=True)
    return _ImageFeatures(torch.cat(embeds), tuple(torch.cat(layer) for layer in zip(*layers, strict=True)))


def has_vision_encoder(model: PreTrainedModel) -> bool:
    return hasattr(model.config, "vision_config")


def vision_encoder(model: PreTrainedModel) -> torch.nn.Module:
    """The vision encoder of a vision-language model, including its projection into the language model."""
    encoder: torch.nn.Module = model.base_model.visual
    return encoder


def set_text_attention(model: PreTrainedModel, implementation: str) -> None:
    """Make the language model use our attention implementation and leave a vision encoder as it is."""
    if not has_vision_encoder(model):
        model.set_attn_implementation(implementation)
        return
    parts = {"": implementation, "text_config": implementation, "vision_config": ENCODER_ATTENTION}
    model.set_attn_implementation(parts)


def image_features(model: PreTrainedModel, pixels: Tensor, grids: Tensor) -> list[_ImageFeatures]:
    """The features of each image. `pixels` and `grids` come from `PixelMaker`."""
    device = model.device
    core: Any = model.base_model
    found = core.get_image_features(pixels.to(device), grids.to(device), return_dict=True)
    layers = getattr(found, "deepstack_features", None) or []
    deepstack = list(zip(*layers, strict=True)) if layers else [()] * len(found.pooler_output)
    return [_ImageFeatures(embeds, tuple(more)) for embeds, more in zip(found.pooler_output, deepstack, strict=True)]


def _hidden_states(
    model: PreTrainedModel,
    input_ids: Tensor,
    positions: Tensor,
    *,
    image_mask: Tensor,
    features: _ImageFeatures | None,
    **options: Any,
) -> Tensor:
    """Last hidden states (B, L, H). `positions` is (3, B, L); `image_mask` (B, L) is true on image tokens, whose
    `features` are in the order of rows, None if there are no images. `options` go to the language model.
    """
    core: Any = model.base_model
    language = core.language_model
    embeds = language.get_input_embeddings()(input_ids)
    if features is not None:
        embeds = embeds.masked_scatter(image_mask[..., None], features.embeds.to(embeds.dtype))
        if features.deepstack:
            options |= {"visual_pos_masks": image_mask, "deepstack_visual_embeds": list(features.deepstack)}
    hidden: Tensor = language(inputs_embeds=embeds, position_ids=positions, **options).last_hidden_state
    return hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionPrompt:
    """A prompt as an engine's cache and passes need it: `keys` (L,) as `cache_keys` makes them, rotary `positions`
    (3, L), and the position of the first token after the prompt.
    """

    images: tuple[PlacedImage, ...]
    keys: Ints
    positions: Ints
    following: int

    def positions_between(self, low: int, high: int) -> Ints:
        """(3, high - low) positions of tokens of the prompt and of the reply after it."""
        inside = self.positions[:, low:high]
        after = self.following + np.arange(max(low, len(self.keys)), high) - len(self.keys)
        return np.concatenate([inside, np.broadcast_to(after, (3, len(after)))], axis=1)


class VisionPasses:
    """Forward passes of an engine over a vision-language model. Image tokens are never sampled: their logits are -inf.

    The vision encoder runs when a pass first contains tokens of an image. An engine keeps the features by the image's
    digest, up to KEPT_BYTES, because an episode shows its last images again in every prompt.
    """

    def __init__(self, model: PreTrainedModel, vision: VisionFormat) -> None:
        self._model, self._vision = model, vision
        self._pixels = PixelMaker(vision)
        self._kept: OrderedDict[str, _ImageFeatures] = OrderedDict()  # the ones used last come last

    def prompt(self, ids: Sequence[int], images: Sequence[PlacedImage]) -> VisionPrompt:
        """Raises ValueError if tokens and images do not belong together."""
        check_placed(ids, images, image=self._vision.image)
        grids = [(one.start, self._vision.grid(one.png, length=one.length)) for one in images]
        positions, following = rope_positions(len(ids), grids)
        return VisionPrompt(
            images=tuple(images), keys=cache_keys(ids, images), positions=positions, following=following
        )

    def forget(self) -> None:
        """Drop features that were computed with earlier weights."""
        self._kept.clear()

    def logits(
        self, ids: Ints, rows: Sequence[tuple[VisionPrompt, int, int]], last: Tensor, options: Mapping[str, Any]
    ) -> Tensor:
        """Logits (len(last), V) after the tokens at indices `last` of a packed pass.

        `ids` (T,) are cache keys. Each row is a prompt and the bounds of its tokens that are in the pass. `options` go
        to the language model.
        """
        device = self._model.device
        image_mask = ids < 0
        positions = np.concatenate([prompt.positions_between(low, high) for prompt, low, high in rows], axis=1)
        hidden = _hidden_states(
            self._model,
            torch.from_numpy(np.where(image_mask, self._vision.image, ids))[None].to(device),
            torch.from_numpy(positions)[:, None].to(device),
            image_mask=torch.from_numpy(image_mask)[None].to(device),
            features=self._features(rows) if image_mask.any() else None,
            **options,
        )
        logits: Tensor = self._model.get_output_embeddings()(hidden[0, last])
        logits[:, list(self._vision.banned)] = -torch.inf
        return logits

    def _features(self, rows: Sequence[tuple[VisionPrompt, int, int]]) -> _ImageFeatures:
        """Of the image tokens in a pass, in order."""
        shown = [
            (one, max(low, one.start) - one.start, min(high, one.end) - one.start)
            for prompt, low, high in rows
            for one in prompt.images
            if one.start < high and one.end > low
        ]
        found = self._encoded({one.digest: one for one, _, _ in shown})
        return _concatenated([found[one.digest].between(low, high) for one, low, high in shown])

    def _encoded(self, images: dict[str, PlacedImage]) -> dict[str, _ImageFeatures]:
        found = {digest: self._kept[digest] for digest in images if digest in self._kept}
        for digest in found:
            self._kept.move_to_end(digest)
        fresh = [one for digest, one in images.items() if digest not in found]
        for low in range(0, len(fresh), ENCODED_AT_ONCE):
            part = fresh[low : low + ENCODED_AT_ONCE]
            pixels, grids = self._pixels.pixels([one.png for one in part])
            for one, features in zip(part, image_features(self._model, pixels, grids), strict=True):
                found[one.digest] = self._kept[one.digest] = features
                while len(self._kept) > 1 and sum(kept.bytes for kept in self._kept.values()) > KEPT_BYTES:
                    self._kept.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionInputs:
    """The image inputs of a pass over B rows of L tokens.

    `positions` (3, B, L) are for M-RoPE; `image_mask` (B, L) is true on image tokens. `pixels` and `grids` belong to
    the distinct images, None without images; `order` is the index of the image of each span, in the order of rows.
    Images with an empty `order` are encoded because other ranks need the collective call, and change nothing.
    """

    positions: Tensor
    image_mask: Tensor
    pixels: Tensor | None
    grids: Tensor | None
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionText:
    """The tokens of one row: their number, and the images and (start, end, anchor) branches among them."""

    length: int
    images: Sequence[ImageSpan]
    branches: Sequence[tuple[int, int, int]] = ()


class VisionCollator:
    """Makes the image inputs of training passes. `png_of` reads the file with a digest.

    With `always`, a pass without images encodes a blank one, because ranks that hold shards of the vision encoder's
    weights have to gather them together.
    """

    def __init__(self, vision: VisionFormat, png_of: Callable[[str], bytes], *, always: bool = False) -> None:
        self.vision, self._png_of, self._always = vision, png_of, always
        self._maker = PixelMaker(vision)

    def inputs(self, texts: Sequence[VisionText], *, packed: bool, device: torch.device) -> VisionInputs:
        """The inputs of texts that follow each other in one row (`packed`), or are rows padded on the right."""
        lengths = [text.length for text in texts]
        starts = np.cumsum(lengths) - lengths if packed else np.zeros(len(texts), dtype=np.int64)
        shape = (1, sum(lengths)) if packed else (len(texts), max(lengths))
        positions, mask = np.zeros((3, *shape), dtype=np.int64), np.zeros(shape, dtype=np.bool_)
        distinct: dict[str, int] = {}
        order = []
        for number, (text, start) in enumerate(zip(texts, starts.tolist(), strict=True)):
            row = 0 if packed else number
            grids = {one: self.vision.grid(self._png_of(one.digest), length=one.length) for one in text.images}
            positions[:, row, start : start + text.length] = _rope_positions(text, grids)
            for one in text.images:
                mask[row, start + one.start : start + one.start + one.length] = True
                order.append(distinct.setdefault(one.digest, len(distinct)))
        pngs = [*map(self._png_of, distinct)] or ([self._blank] if self._always else [])
        pixels, grid_sizes = self._maker.pixels(pngs) if pngs else (None, None)
        return VisionInputs(
            positions=torch.from_numpy(positions).to(device),
            image_mask=torch.from_numpy(mask).to(device),
            pixels=None if pixels is None else pixels.to(device),
            grids=None if grid_sizes is None else grid_sizes.to(device),
            order=tuple(order),
        )

    @cached_property
    def _blank(self) -> bytes:
        from PIL import Image

        sink, side = io.BytesIO(), self.vision.patch * self.vision.merge
        Image.new("RGB", (side, side)).save(sink, format="PNG")
        return sink.getvalue()


def _rope_positions(text: VisionText, grids: Mapping[ImageSpan, tuple[int, int]]) -> Ints:
    """(3, length) positions of the trunk, and of each branch as if it followed its anchor directly."""
    trunk = min((start for start, _, _ in text.branches), default=text.length)

    def within(low: int, high: int) -> list[tuple[int, tuple[int, int]]]:
        return [
            (one.start - low, grids[one]) for one in text.images if low <= one.start and one.start + one.length <= high
        ]

    found = np.empty((3, text.length), dtype=np.int64)
    found[:, :trunk], _ = rope_positions(trunk, within(0, trunk))
    for start, end, anchor in text.branches:
        _, following = rope_positions(anchor, within(0, anchor))
        own, _ = rope_positions(end - start, within(start, end))
        found[:, start:end] = following + own
    return found


def vision_states(model: PreTrainedModel, input_ids: Tensor, inputs: VisionInputs, **options: Any) -> Tensor:
    """Last hidden states (B, L, H) of a vision-language model."""
    encoded: list[_ImageFeatures] = []
    if inputs.pixels is not None and inputs.grids is not None:
        encoded = image_features(model, inputs.pixels, inputs.grids)
    features = _concatenated([encoded[number] for number in inputs.order]) if inputs.order else None
    hidden = _hidden_states(
        model, input_ids, inputs.positions, image_mask=inputs.image_mask, features=features, use_cache=False, **options
    )
    if encoded and features is None:  # keeps the encoder in the graph, so that its gradients are gathered too
        hidden = hidden + 0.0 * sum(part.sum() for one in encoded for part in (one.embeds, *one.deepstack))
    return hidden


def write_images(file: Path, images: Iterable[tuple[str, bytes]]) -> None:
    """Write (digest, PNG) pairs as they come, one at a time in memory."""
    with ZipFile(file, "w") as sink:
        for digest, png in images:
            sink.writestr(digest, png)
