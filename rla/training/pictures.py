"""Pictures in training: everything that a vision-language model needs beyond token ids.

A forward pass gets pixel values and rotary positions as well (`VisionCollator`). Pixel values are made for one pass
from the PNG files of its pictures and dropped after it; a picture that several sequences of a pass show is encoded
once. Each text has the positions that it would have alone: a branch goes on behind its anchor.

The pictures of a stage lie in an Arrow IPC file, each once, and are read by digest (`StoredImages`).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rla.models.sight import image_features, joined_features, seeing_states
from rla.models.vision import Ints, PixelMaker, VisionFormat, rope_positions
from rla.store.records import ImageSpan
from rla.training.packing import Branch

IMAGES = pa.schema([("digest", pa.string()), ("png", pa.binary())])


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionInputs:
    """The picture inputs of a pass over B rows of L tokens.

    `positions` (3, B, L) for M-RoPE; `image_mask` (B, L) is true on picture tokens. `pixels` and `grids` are those of
    distinct pictures, None if there are none; `order` names the picture of each image span in the order of rows. With
    pictures but an empty `order` they are encoded for the sake of other ranks and change nothing.
    """

    positions: Tensor
    image_mask: Tensor
    pixels: Tensor | None
    grids: Tensor | None
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionText:
    """The tokens of one row: their number, and the pictures and branches among them."""

    length: int
    images: Sequence[ImageSpan]
    branches: Sequence[Branch] = ()


class VisionCollator:
    """Makes the picture inputs of passes. `pngs` are the files by digest.

    `always`: a pass without pictures encodes a blank one, because ranks that share the sharded weights of the vision
    encoder have to gather them together.
    """

    def __init__(self, vision: VisionFormat, pngs: Mapping[str, bytes], *, always: bool = False) -> None:
        self.vision, self._pngs, self._always = vision, pngs, always
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
            grids = {one: self._grid(one) for one in text.images}
            positions[:, row, start : start + text.length] = _rope_positions(text, grids)
            for one in text.images:
                mask[row, start + one.start : start + one.start + one.length] = True
                order.append(distinct.setdefault(one.digest, len(distinct)))
        pngs = [self._pngs[digest] for digest in distinct] or ([self._blank] if self._always else [])
        pixels, grid_sizes = self._maker.pixels(pngs) if pngs else (None, None)
        return VisionInputs(
            positions=torch.from_numpy(positions).to(device),
            image_mask=torch.from_numpy(mask).to(device),
            pixels=None if pixels is None else pixels.to(device),
            grids=None if grid_sizes is None else grid_sizes.to(device),
            order=tuple(order),
        )

    def _grid(self, image: ImageSpan) -> tuple[int, int]:
        rows, columns = self.vision.grid(self._pngs[image.digest])
        if rows * columns != image.length:
            raise ValueError(
                f"picture {image.digest[:12]} has {image.length} tokens, and {rows} x {columns} for this model"
            )
        return rows, columns

    @cached_property
    def _blank(self) -> bytes:
        from PIL import Image

        sink, side = io.BytesIO(), self.vision.patch * self.vision.merge
        Image.new("RGB", (side, side)).save(sink, format="PNG")
        return sink.getvalue()


def _rope_positions(text: VisionText, grids: Mapping[ImageSpan, tuple[int, int]]) -> Ints:
    """(3, length) positions of the trunk, and of each branch as if it stood right behind its anchor."""
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
    features = None
    encoded = (
        [] if inputs.pixels is None or inputs.grids is None else image_features(model, inputs.pixels, inputs.grids)
    )
    if inputs.order:
        features = joined_features([encoded[number] for number in inputs.order])
    hidden = seeing_states(
        model, input_ids, inputs.positions, looked=inputs.image_mask, features=features, use_cache=False, **options
    )
    if encoded and features is None:
        hidden = hidden + 0.0 * sum(part.sum() for one in encoded for part in (one.embeds, *one.deep))
    return hidden


def write_images(file: Path, images: Iterable[tuple[str, bytes]]) -> None:
    """Store (digest, PNG) pairs as they come, one at a time in memory."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".tmp")
    with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, IMAGES) as writer:
        for digest, png in images:
            writer.write_batch(pa.record_batch([[digest], [png]], schema=IMAGES))
    aside.rename(file)


class StoredImages(Mapping[str, bytes]):
    """The PNG files that `write_images` stored, by digest."""

    def __init__(self, file: Path) -> None:
        self._map = pa.memory_map(str(file))
        self._reader = pa.ipc.open_file(self._map)
        count = self._reader.num_record_batches
        self._places = {self._reader.get_batch(place)["digest"][0].as_py(): place for place in range(count)}

    def __getitem__(self, digest: str) -> bytes:
        png: bytes = self._reader.get_batch(self._places[digest])["png"][0].as_py()
        return png

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def close(self) -> None:
        self._map.close()
