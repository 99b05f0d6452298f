"""Optimizer steps and forward passes: which sequences go together.

An epoch is shuffled by seed and cut into `updates` parts whose sizes differ by one at most (fewer parts where
there are fewer sequences), so every sequence trains. A part is sorted by length and cut into micro-batches of
at most `tokens_per_batch` padded tokens; a sequence that alone is longer is a micro-batch of its own. Padding
is on the right: causal attention never looks there, so only branches need a mask.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rla.training.data import TrainingSequence

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward pass over B rows of length L with N loss tokens.

    `rows`, `columns` (N) say where the hidden state lies that predicts a token. With branches, `place` (B, L)
    numbers the tokens along each branch and `visible` (B, 1, L, L) says which tokens a token attends to.
    `allowed` (N, A) is filled up with ids of the same row; rows of unrestricted tokens (`restricted` false)
    are unused.
    """

    indices: list[int]
    input_ids: Tensor
    place: Tensor | None
    visible: Tensor | None
    rows: Tensor
    columns: Tensor
    targets: Tensor
    allowed: Tensor | None
    restricted: Tensor | None
    logp_old: Tensor
    advantages: Tensor


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


def micro_batches(lengths: Sequence[int], indices: Sequence[int], *, tokens_per_batch: int) -> list[list[int]]:
    """`indices`, longest first, cut so that rows times the longest row stays within the budget."""
    batches: list[list[int]] = []
    for index in sorted(indices, key=lambda index: (-lengths[index], index)):
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= tokens_per_batch:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def collate(sequences: Sequence[TrainingSequence], indices: Sequence[int], *, device: torch.device) -> Batch:
    """Tensors of the chosen sequences; a row's last token is predicted only, so it is no input."""
    import torch

    chosen = [sequences[index] for index in indices]
    input_ids = torch.zeros(len(chosen), max(len(one.token_ids) for one in chosen) - 1, dtype=torch.long)
    for row, one in enumerate(chosen):
        input_ids[row, : len(one.token_ids) - 1] = torch.tensor(one.token_ids[:-1])
    allowed, restricted = _pad_allowed([ids for one in chosen for ids in one.allowed], device=device)
    rows = [row for row, one in enumerate(chosen) for _ in one.positions]
    columns = [column for one in chosen for column in one.predictors()]
    targets = [one.token_ids[position] for one in chosen for position in one.positions]
    place, visible = _branches(chosen, input_ids.shape[1], device=device)
    return Batch(
        indices=list(indices),
        input_ids=input_ids.to(device),
        place=place,
        visible=visible,
        rows=torch.tensor(rows, device=device),
        columns=torch.tensor(columns, device=device),
        targets=torch.tensor(targets, device=device),
        allowed=allowed,
        restricted=restricted,
        logp_old=torch.tensor([x for one in chosen for x in one.logp], dtype=torch.float32, device=device),
        advantages=torch.tensor([x for one in chosen for x in one.advantages], dtype=torch.float32, device=device),
    )


def _branches(
    sequences: Sequence[TrainingSequence], length: int, *, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """Places (B, L) and visibility (B, 1, L, L), or nothing where every sequence is plain text."""
    import torch

    if not any(one.branches for one in sequences):
        return None, None
    place = torch.arange(length).repeat(len(sequences), 1)
    branch = torch.zeros(len(sequences), length, dtype=torch.long)
    for row, one in enumerate(sequences):
        for number, (start, end) in enumerate(one.branches, start=1):
            branch[row, start:end] = number
            place[row, start:end] -= start - one.prefix
    branch, place = branch.to(device), place.to(device)
    same = (branch[:, :, None] == branch[:, None, :]) | (branch[:, None, :] == 0)
    return place, (same & torch.ones(length, length, dtype=torch.bool, device=device).tril())[:, None]


def _pad_allowed(allowed: list[list[int]], *, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
    """(N, A) ids and (N) flags, or nothing where no token was restricted."""
    import torch

    width = max((len(ids) for ids in allowed), default=0)
    if width == 0:
        return None, None
    padded = [ids + [ids[0] if ids else 0] * (width - len(ids)) for ids in allowed]
    flags = [bool(ids) for ids in allowed]
    return torch.tensor(padded, device=device), torch.tensor(flags, device=device)
