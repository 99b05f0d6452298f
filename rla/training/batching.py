"""Optimizer steps and forward passes: which sequences go together.

An epoch is shuffled by seed and cut into `updates` parts whose sizes differ by one at most (fewer parts where there
are fewer sequences; as many as it takes with `sequences_per_update`), so every sequence trains. With `whole_groups`
the sequences of a task stay together, and the parts differ by one task at most. A part is sorted by length and cut into
micro-batches of at most `tokens_per_batch` tokens; a sequence that alone is longer is a micro-batch of its own. A
micro-batch is one row of sequences behind each other (`rla.training.packing`), or, for models that cannot take that, a
row for each, padded on the right: causal attention never looks there, so only branches need a mask.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from rla.training.data import TrainingSequence

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from rla.training.branches import Branch, Forks
    from rla.training.eyes import Eyes, Looks, SeenText
    from rla.training.packing import Packing


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
    import torch

    from rla.training.branches import forks
    from rla.training.packing import pack

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
    from rla.training.eyes import SeenText

    found = []
    for one, branches in zip(chosen, marks, strict=True):
        length = len(one.token_ids) - 1
        cut = [(start, min(end, length), anchor) for start, end, anchor in branches]
        found.append(SeenText(length=length, images=one.images, branches=cut))
    return found


def _number(units: Sequence[tuple[int, int]]) -> Tensor:
    """Equal units get equal numbers, from 0 on."""
    import torch

    numbers: dict[tuple[int, int], int] = {}
    return torch.tensor([numbers.setdefault(unit, len(numbers)) for unit in units], dtype=torch.long)


def _pad_allowed(allowed: list[list[int]], *, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
    """(N, A) ids and (N) flags, or nothing where no token was restricted."""
    import torch

    width = max((len(ids) for ids in allowed), default=0)
    if width == 0:
        return None, None
    padded = [ids + [ids[0] if ids else 0] * (width - len(ids)) for ids in allowed]
    flags = [bool(ids) for ids in allowed]
    return torch.tensor(padded, device=device), torch.tensor(flags, device=device)
