"""Optimizer steps and forward passes: which sequences go together.

An epoch is shuffled by seed and cut into `updates` parts whose sizes differ by one at most (fewer parts where there
are fewer sequences; as many as it takes with `sequences_per_update`), so every sequence trains. With `whole_groups`
the sequences of a task stay together, and the parts differ by one task at most. A part is sorted by length and cut into
micro-batches of at most `tokens_per_batch` tokens; a sequence that alone is longer is a micro-batch of its own. A
micro-batch is one row of sequences behind each other (`rla.training.packing`), or, for models that cannot take that, a
row for each, padded on the right: causal attention never looks there, so only branches need a mask.

A vision-language model needs pixel values and rotary positions as well (`Eyes`). Pixel values are made here, of the
pictures of one pass, and are gone with it. A picture that many sequences of a pass show is looked at once. Positions
are those that each text would have alone: a branch goes on behind its anchor.
"""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np
import torch
from torch import Tensor

from rla.models.vision import Ints, PixelMaker, VisionFormat, rope_positions
from rla.store.records import ImageSpan
from rla.training.data import TrainingSequence
from rla.training.packing import Branch, Forks, Packing, forks, pack


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward pass over B rows of length L with N loss tokens.

    `rows`, `columns` (N) say where the hidden state lies that predicts a token. `packing` is for a single row of many
    sequences, `forks` for padded rows with branches.
    `replies` (N) numbers the replies that the loss tokens belong to, `segments` (N) what continues the same prompt: a
    sequence, or one of its branches, which do not see each other. `allowed` (N, A) is filled up with ids of the
    same row; rows of unrestricted tokens (`restricted` false) are unused. `looks`: for a vision-language model.
    """

    input_ids: Tensor
    packing: Packing | None
    forks: Forks | None
    rows: Tensor
    columns: Tensor
    targets: Tensor
    allowed: Tensor | None
    restricted: Tensor | None
    logp_sampled: Tensor
    advantages: Tensor
    replies: Tensor
    segments: Tensor
    looks: Looks | None = None


def steps_per_epoch(count: int, *, updates: int, sequences_per_update: int) -> int:
    """Optimizer steps of an epoch of `count` sequences: a stated number, or one for every so many sequences."""
    return ceil(count / sequences_per_update) if sequences_per_update else updates


def plan_updates(count: int, *, updates: int, epochs: int, seed: int) -> list[list[int]]:
    """The indices of each optimizer step's sequences; an epoch holds every index once."""
    plan: list[list[int]] = []
    for epoch in range(epochs):
        order = list(range(count))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        parts = min(updates, count)
        bounds = [count * part // parts for part in range(parts + 1)] if parts else []
        plan += [order[low:high] for low, high in itertools.pairwise(bounds)]
    return plan


def micro_batches(
    lengths: Sequence[int], indices: Sequence[int], *, tokens_per_batch: int, packed: bool
) -> list[list[int]]:
    """`indices`, longest first, cut so that their tokens stay within the budget; padded ones count as the longest."""
    batches: list[list[int]] = []
    used = 0
    for index in sorted(indices, key=lambda index: (-lengths[index], index)):
        cost = lengths[index] if packed or not batches else lengths[batches[-1][0]]
        if batches and used + cost <= tokens_per_batch:
            batches[-1].append(index)
            used += cost
        else:
            batches.append([index])
            used = lengths[index]
    return batches


def collate(
    chosen: Sequence[TrainingSequence], *, device: torch.device, packed: bool, eyes: Eyes | None = None
) -> Batch:
    """Tensors of the sequences; a row's last token is predicted only, so it is no input. `eyes`: of a model that sees
    pictures.
    """
    lengths = [len(one.token_ids) - 1 for one in chosen]
    starts = [0, *itertools.accumulate(lengths)] if packed else [0] * len(chosen)
    input_ids = torch.zeros(*((1, sum(lengths)) if packed else (len(chosen), max(lengths))), dtype=torch.long)
    for row, (one, start, length) in enumerate(zip(chosen, starts, lengths, strict=False)):
        input_ids[0 if packed else row, start : start + length] = torch.tensor(one.token_ids[:-1])
    allowed, restricted = _pad_allowed([ids for one in chosen for ids in one.allowed], device=device)
    number = [row for row, one in enumerate(chosen) for _ in one.positions]
    columns = [starts[row] + column for row, one in enumerate(chosen) for column in one.predictors()]
    targets = [one.token_ids[position] for one in chosen for position in one.positions]
    replies = [(row, reply) for row, one in enumerate(chosen) for reply in one.reply_numbers()]
    segments = [(row, reply if chosen[row].branches else 0) for row, reply in replies]
    marks = [[(start, end, one.prefix) for start, end in one.branches] for one in chosen]
    return Batch(
        input_ids=input_ids.to(device),
        packing=pack(lengths, marks, device=device) if packed else None,
        forks=None if packed else forks(marks, input_ids.shape[1], device=device),
        rows=torch.tensor([0] * len(number) if packed else number, device=device),
        columns=torch.tensor(columns, device=device),
        targets=torch.tensor(targets, device=device),
        allowed=allowed,
        restricted=restricted,
        logp_sampled=torch.tensor([x for one in chosen for x in one.logp], dtype=torch.float32, device=device),
        advantages=torch.tensor([x for one in chosen for x in one.advantages], dtype=torch.float32, device=device),
        replies=_number(replies).to(device),
        segments=_number(segments).to(device),
        looks=None if eyes is None else eyes.looks(seen_texts(chosen, marks), packed=packed, device=device),
    )


def seen_texts(chosen: Sequence[TrainingSequence], marks: Sequence[Sequence[Branch]]) -> list[SeenText]:
    """What each row shows, without its last token."""

    found = []
    for one, branches in zip(chosen, marks, strict=True):
        length = len(one.token_ids) - 1
        cut = [(start, min(end, length), anchor) for start, end, anchor in branches]
        found.append(SeenText(length=length, images=one.images, branches=cut))
    return found


def _number(units: Sequence[tuple[int, int]]) -> Tensor:
    """Equal units get equal numbers, from 0 on."""
    numbers: dict[tuple[int, int], int] = {}
    return torch.tensor([numbers.setdefault(unit, len(numbers)) for unit in units], dtype=torch.long)


def _pad_allowed(allowed: list[list[int]], *, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
    """(N, A) ids and (N) flags, or nothing where no token was restricted."""
    width = max((len(ids) for ids in allowed), default=0)
    if width == 0:
        return None, None
    padded = [ids + [ids[0] if ids else 0] * (width - len(ids)) for ids in allowed]
    flags = [bool(ids) for ids in allowed]
    return torch.tensor(padded, device=device), torch.tensor(flags, device=device)
