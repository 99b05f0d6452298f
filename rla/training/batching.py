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

    from rla.training.branches import Forks


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward pass over B rows of length L with N loss tokens.

    `rows`, `columns` (N) say where the hidden state lies that predicts a token. `forks` is for rows with branches.
    `replies` (N) numbers the replies that the loss tokens belong to. `allowed` (N, A) is filled up with ids of the
    same row; rows of unrestricted tokens (`restricted` false) are unused.
    """

    indices: list[int]
    input_ids: Tensor
    forks: Forks | None
    rows: Tensor
    columns: Tensor
    targets: Tensor
    allowed: Tensor | None
    restricted: Tensor | None
    logp_sampled: Tensor
    advantages: Tensor
    replies: Tensor


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

    from rla.training.branches import forks

    chosen = [sequences[index] for index in indices]
    input_ids = torch.zeros(len(chosen), max(len(one.token_ids) for one in chosen) - 1, dtype=torch.long)
    for row, one in enumerate(chosen):
        input_ids[row, : len(one.token_ids) - 1] = torch.tensor(one.token_ids[:-1])
    allowed, restricted = _pad_allowed([ids for one in chosen for ids in one.allowed], device=device)
    rows = [row for row, one in enumerate(chosen) for _ in one.positions]
    columns = [column for one in chosen for column in one.predictors()]
    targets = [one.token_ids[position] for one in chosen for position in one.positions]
    marks = [[(start, end, one.prefix) for start, end in one.branches] for one in chosen]
    return Batch(
        indices=list(indices),
        input_ids=input_ids.to(device),
        forks=forks(marks, input_ids.shape[1], device=device),
        rows=torch.tensor(rows, device=device),
        columns=torch.tensor(columns, device=device),
        targets=torch.tensor(targets, device=device),
        allowed=allowed,
        restricted=restricted,
        logp_sampled=torch.tensor([x for one in chosen for x in one.logp], dtype=torch.float32, device=device),
        advantages=torch.tensor([x for one in chosen for x in one.advantages], dtype=torch.float32, device=device),
        replies=_number([(row, reply) for row, one in enumerate(chosen) for reply in one.reply_numbers()]).to(device),
    )


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
