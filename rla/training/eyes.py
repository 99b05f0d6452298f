"""What a forward pass of a vision-language model needs beside its tokens: pixel values and rotary positions.

Pixel values are made here, of the pictures of one pass, and are gone with it. A picture that many sequences of a pass
show is looked at once. Positions are those that each text would have alone: a branch goes on behind its anchor.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rla.models.pixels import PixelMaker
from rla.models.vision import Ints, VisionFormat, rope_positions
from rla.store.records import ImageSpan
from rla.training.branches import Branch


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """Of a pass over B rows of L tokens: `positions` (3, B, L), and `looked` (B, L), where tokens of pictures stand.

    `pixels` and `grids` are of distinct pictures; `order` names the one of each place in the order of rows. None where
    the pass shows none. Pictures without an `order` are looked at for the sake of other ranks, and count nothing.
    """

    positions: Tensor
    looked: Tensor
    pixels: Tensor | None
    grids: Tensor | None
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenText:
    """The tokens of one row: as many as `length`, among them pictures, some of them perhaps in branches."""

    length: int
    images: Sequence[ImageSpan]
    branches: Sequence[Branch] = ()


class Eyes:
    """`pngs`: files by digest. `always`: a pass without pictures looks at a blank one, because ranks that share the
    tower's weights have to gather them together.
    """

    def __init__(self, vision: VisionFormat, pngs: Mapping[str, bytes], *, always: bool = False) -> None:
        self.vision, self._pngs, self._always = vision, pngs, always
        self._maker = PixelMaker(vision)

    def looks(self, texts: Sequence[SeenText], *, packed: bool, device: torch.device) -> Looks:
        """Of texts that follow each other in one row (`packed`), or stand in rows that are padded on the right."""
        lengths = [text.length for text in texts]
        starts = np.cumsum(lengths) - lengths if packed else np.zeros(len(texts), dtype=np.int64)
        shape = (1, sum(lengths)) if packed else (len(texts), max(lengths))
        positions, looked = np.zeros((3, *shape), dtype=np.int64), np.zeros(shape, dtype=np.bool_)
        distinct: dict[str, int] = {}
        order = []
        for number, (text, start) in enumerate(zip(texts, starts.tolist(), strict=True)):
            row = 0 if packed else number
            grids = {one: self._grid(one) for one in text.images}
            positions[:, row, start : start + text.length] = text_positions(text, grids)
            for one in text.images:
                looked[row, start + one.start : start + one.start + one.length] = True
                order.append(distinct.setdefault(one.digest, len(distinct)))
        pngs = [self._pngs[digest] for digest in distinct] or ([self._blank] if self._always else [])
        pixels, grid_sizes = self._maker.pixels(pngs) if pngs else (None, None)
        return Looks(
            positions=torch.from_numpy(positions).to(device),
            looked=torch.from_numpy(looked).to(device),
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


def text_positions(text: SeenText, grids: Mapping[ImageSpan, tuple[int, int]]) -> Ints:
    """(3, length) positions of the trunk, and of each branch those that it would have right behind its anchor."""
    trunk = min((start for start, _, _ in text.branches), default=text.length)

    def placed(low: int, high: int) -> list[tuple[int, tuple[int, int]]]:
        return [
            (one.start - low, grids[one]) for one in text.images if low <= one.start and one.start + one.length <= high
        ]

    found = np.empty((3, text.length), dtype=np.int64)
    found[:, :trunk], _ = rope_positions(trunk, placed(0, trunk))
    for start, end, anchor in text.branches:
        _, following = rope_positions(anchor, placed(0, anchor))
        own, _ = rope_positions(end - start, placed(start, end))
        found[:, start:end] = following + own
    return found
