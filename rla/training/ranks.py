"""Several processes that train one model, each with the whole of it: who computes what, what they tell each other.

`accelerate launch --num_processes n -m rla train-policy ...` (or torchrun) starts them. Every rank reads the same rows
and makes the same plan; the forward passes of an optimizer step are dealt out, gradients and sums are added up, and all
ranks take the same step. The first rank alone writes. A single process meets none of this.

The weights of the loss are those of the whole step (`aggregation`), so the sum over ranks is exact: no mean of means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed

from rla.errors import UserError
from rla.processes import rank, world

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among `world`; the first has `rank` 0."""

    rank: int = 0
    world: int = 1
    device: torch.device | None = None  # the one that the launcher gave this process

    @classmethod
    def join(cls) -> Ranks:
        """Meet the other processes that the launcher started: NCCL on GPUs, Gloo on CPUs."""
        if world() == 1:
            return cls()
        from accelerate import PartialState

        state = PartialState(cpu=not torch.cuda.is_available())
        if state.num_processes != world():
            raise UserError(f"{world()} processes were started, but {state.num_processes} met; look at their logs")
        return cls(rank=rank(), world=world(), device=state.device)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, parts: Sequence[list[int]]) -> list[list[int]]:
        """Every world-th part: parts come by falling size, so that shares are alike."""
        return list(parts[self.rank :: self.world])

    def add_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Every parameter's gradient becomes the sum over ranks; one that had no part in this rank counts as 0."""
        if self.world == 1:
            return
        gradients = []
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        for gradient, total in zip(gradients, flat.split([one.numel() for one in gradients]), strict=True):
            gradient.copy_(total.view_as(gradient))

    def gather(self, found: T) -> list[T]:
        """What every rank found, in their order."""
        if self.world == 1:
            return [found]
        everybody: list[T | None] = [None] * self.world
        distributed.all_gather_object(everybody, found)
        return [one for one in everybody if one is not None]

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.world > 1:
            distributed.barrier()


def combined(totals: Iterable[dict[str, Tensor]], extremes: Sequence[str]) -> dict[str, Tensor]:
    """Sums over ranks, and the largest of the extremes; a rank without a forward pass has none."""
    result: dict[str, Tensor] = {}
    for one in totals:
        for key, value in one.items():
            if key not in result:
                result[key] = value
            else:
                result[key] = torch.maximum(result[key], value) if key in extremes else result[key] + value
    return result
