"""Passes of the transformers engine over prompts with pictures.

The vision tower runs when a pass first brings tokens of a picture; what it found is kept by the picture's digest, up to
a number of bytes, since an episode shows its last screens again in every prompt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rla.errors import UserError
from rla.llm.passes import TextPasses
from rla.llm.placed_images import PlacedImage, cache_keys, check_placed
from rla.llm.slot_cache import SlotCache
from rla.llm.slots import Ints
from rla.models.sight import ImageFeatures, image_features, joined_features, seeing_states, sees
from rla.models.vision import PixelMaker, VisionFormat, rope_positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rla.llm.base import Request
    from rla.llm.jobs import Row

KEPT_BYTES = 1 << 28  # of features
AT_ONCE = 16  # pictures that the tower looks at together


class KeptFeatures:
    """Features by the digest of their picture, the ones used last."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self.limit = limit
        self._found: OrderedDict[str, ImageFeatures] = OrderedDict()
        self.bytes = 0

    def get(self, digest: str) -> ImageFeatures | None:
        found = self._found.get(digest)
        if found is not None:
            self._found.move_to_end(digest)
        return found

    def put(self, digest: str, features: ImageFeatures) -> None:
        self._found[digest] = features
        self.bytes += features.bytes
        while self.bytes > self.limit and len(self._found) > 1:
            _, gone = self._found.popitem(last=False)
            self.bytes -= gone.bytes


class PicturePasses(TextPasses):
    """Passes of a vision-language model. Tokens of pictures are never sampled: their logits are -inf."""

    def __init__(self, model: PreTrainedModel, cache: SlotCache, *, context: int, vision: VisionFormat) -> None:
        super().__init__(model, cache, context=context)
        self._vision = vision
        self._pixels = PixelMaker(vision)
        self._kept = KeptFeatures()

    def prompt(self, request: Request) -> Ints:
        """Raises ValueError where tokens and pictures do not belong together."""
        check_placed(request.prompt_ids, request.images, image=self._vision.image)
        for one in request.images:
            rows, columns = self._vision.grid(one.png)
            if rows * columns != one.length:
                raise ValueError(f"a picture of {rows} x {columns} tokens has {one.length} in the prompt")
        return cache_keys(request.prompt_ids, request.images)

    def forget(self) -> None:
        self._kept = KeptFeatures()

    def computed(
        self,
        ids: Ints,
        position: Ints,
        last: Tensor,
        *,
        rows: Sequence[Row],
        starts: Ints,
        counts: Ints,
        options: dict[str, Any],
    ) -> Tensor:
        device = self.model.device
        looked = ids < 0
        bounds = [(row, int(low), int(low + count)) for row, low, count in zip(rows, starts, counts, strict=True)]
        places = np.concatenate([self._places(row, low, high) for row, low, high in bounds], axis=1)
        hidden = seeing_states(
            self.model,
            torch.from_numpy(np.where(looked, self._vision.image, ids))[None].to(device),
            torch.from_numpy(places)[:, None].to(device),
            looked=torch.from_numpy(looked)[None].to(device),
            features=self._features(bounds) if looked.any() else None,
            **options,
        )
        logits: Tensor = self.model.get_output_embeddings()(hidden[0, last])
        logits[:, list(self._vision.banned)] = -torch.inf
        return logits

    def _places(self, row: Row, low: int, high: int) -> Ints:
        """(3, high - low) rotary positions of the tokens from `low` to `high` of a row."""
        if row.job.places is None:
            row.job.places = self._prompt_places(row.job.request)
        (told, following), count = row.job.places, len(row.job.prompt)
        inside = told[:, low:high]
        behind = following + np.arange(max(low, count), high) - count
        return np.concatenate([inside, np.broadcast_to(behind, (3, len(behind)))], axis=1)

    def _prompt_places(self, request: Request) -> tuple[Ints, int]:
        grids = [(one.start, self._vision.grid(one.png)) for one in request.images]
        return rope_positions(len(request.prompt_ids), grids)

    def _features(self, bounds: Sequence[tuple[Row, int, int]]) -> ImageFeatures:
        """Of the picture tokens in a pass, in order."""
        shown = [
            (one, max(low, one.start) - one.start, min(high, one.end) - one.start)
            for row, low, high in bounds
            for one in row.job.request.images
            if one.start < high and one.end > low
        ]
        found = self._looked_at({one.digest: one for one, _, _ in shown})
        return joined_features([found[one.digest].cut(low, high) for one, low, high in shown])

    def _looked_at(self, images: dict[str, PlacedImage]) -> dict[str, ImageFeatures]:
        found = {digest: kept for digest in images if (kept := self._kept.get(digest)) is not None}
        fresh = [one for digest, one in images.items() if digest not in found]
        for low in range(0, len(fresh), AT_ONCE):
            part = fresh[low : low + AT_ONCE]
            pixels, grids = self._pixels.pixels([one.png for one in part])
            for one, features in zip(part, image_features(self.model, pixels, grids), strict=True):
                found[one.digest] = features
                self._kept.put(one.digest, features)
        return found


def passes_of(
    model: PreTrainedModel, cache: SlotCache, *, context: int, vision: VisionFormat | None
) -> TextPasses | PicturePasses:
    """How an engine runs a model. Raises UserError for one that sees pictures and whose `vision` is not known."""
    if vision is not None:
        return PicturePasses(model, cache, context=context, vision=vision)
    if sees(model):
        raise UserError(f"{type(model).__name__} sees pictures: its image processor must lie beside the weights")
    return TextPasses(model, cache, context=context)
