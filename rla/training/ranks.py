"""Where training runs: the device, and several processes that share one model and its work.

`accelerate launch --config_file pipelines/accelerate/<kind>.yaml -m rla train-policy ...` (or torchrun) starts them.
Every rank reads the same rows and makes the same plan; the forward passes of an optimizer step are dealt out,
gradients are added up, and all ranks take the same step. The first rank alone writes. A single process meets none of
this.

The weights of the loss are those of the whole step (`losses.token_weights`), so the sum over ranks is exact: no mean of
means. Where weights are spread over the ranks (`sharded`), a forward pass is a common one: a rank that has none of
its own left repeats one, and its result does not count.

`Compute` chooses device, precision and the size of a forward pass. Accelerators enter here and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

import torch
from torch import Tensor, distributed

from rla.config.sections import LaunchConfig
from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.plugins import need_package
from rla.processes.ranks import flag, rank, world
from rla.training.footprint import return_freed_memory

T = TypeVar("T")
PATIENCE = timedelta(hours=12)  # the others wait while the first one reads shards and writes checkpoints
BUCKET = 1 << 26  # elements of one addition over ranks: 256 MiB in fp32
CPU_TOKENS = 2048  # a larger forward pass leaves the caches: a third slower for a tiny model


class Sharing(StrEnum):
    """How the ranks hold the model."""

    WHOLE = "whole"  # each all of it
    FSDP = "fsdp"  # FSDP2: weights, gradients and moments are spread
    DEEPSPEED = "deepspeed"  # ZeRO, at the stage that its configuration names


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among `world`; the first has `rank` 0."""

    rank: int = 0
    world: int = 1
    device: torch.device | None = None  # the one that the launcher gave this process
    sharing: Sharing = Sharing.WHOLE

    @classmethod
    def join(cls) -> Ranks:
        """Meet the other processes that the launcher started: NCCL on GPUs, Gloo on CPUs."""
        fsdp, deepspeed = flag("ACCELERATE_USE_FSDP"), flag("ACCELERATE_USE_DEEPSPEED")
        if world() == 1 and not fsdp and not deepspeed:
            return cls()
        if deepspeed:
            need_package("deepspeed", install="rla[deepspeed]", why="the launcher asks for DeepSpeed")
        from accelerate import PartialState

        # Where it is on, transformers leaves the weights of all but the first process empty.
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
        state = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
        if state.num_processes != world():
            raise UserError(f"{world()} processes were started, but {state.num_processes} met; look at their logs")
        sharing = Sharing.FSDP if fsdp else Sharing.DEEPSPEED if deepspeed else Sharing.WHOLE
        return cls(rank=rank(), world=world(), device=state.device, sharing=sharing)

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def sharded(self) -> bool:
        return self.sharing is not Sharing.WHOLE

    def share(self, parts: Sequence[list[int]]) -> list[tuple[list[int], bool]]:
        """Every world-th part: parts come by falling size, so that shares are alike. False: it does not count."""
        own = [(part, True) for part in parts[self.rank :: self.world]]
        if self.sharded and len(own) < -(-len(parts) // self.world):
            own.append((parts[-1], False))
        return own

    def add_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Every parameter's gradient becomes the sum over ranks; one that had no part in this rank counts as 0."""
        if self.world == 1:
            return
        bucket: list[Tensor] = []
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            bucket.append(parameter.grad)
            if sum(one.numel() for one in bucket) >= BUCKET:
                _add(bucket)
                bucket = []
        _add(bucket)

    def gather(self, found: T) -> list[T]:
        """What every rank found, in their order."""
        if self.world == 1:
            return [found]
        everybody: list[T | None] = [None] * self.world
        distributed.all_gather_object(everybody, found)
        return [one for one in everybody if one is not None]

    def tell(self, found: T | None) -> T:
        """What the first rank found, at every rank."""
        told = [found]
        if self.world > 1:
            distributed.broadcast_object_list(told, src=0)
        [one] = told
        assert one is not None
        return one

    def agree(self, check: Callable[[], None]) -> None:
        """Make a check at every rank. Raises UserError at all of them where it raised one at any."""
        try:
            check()
            found = ""
        except UserError as error:
            found = str(error)
        for message in filter(None, self.gather(found)):
            raise UserError(message)

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.world > 1:
            distributed.barrier()


def _add(gradients: Sequence[Tensor]) -> None:
    """Over ranks, in place, as one flat tensor."""
    if not gradients:
        return
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    distributed.all_reduce(flat)
    for gradient, total in zip(gradients, flat.split([one.numel() for one in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Where tensors live and in which precision the forward pass runs."""

    device: torch.device
    mixed: bool
    tokens_per_batch: int
    ranks: Ranks
    replicas: int = 1  # groups of ranks that each hold the whole model
    defer: bool = False  # gradients are added over ranks once an optimizer step

    @classmethod
    def choose(cls, config: TrainConfig, ranks: Ranks, launch: LaunchConfig | None = None) -> Compute:
        """CUDA if there is one.

        Raises UserError for groups that the ranks do not fill, or without FSDP2.
        """
        launch = launch or LaunchConfig()
        if launch.replicas > 1 and (ranks.sharing is not Sharing.FSDP or ranks.world % launch.replicas):
            raise UserError(
                f"launch.replicas is {launch.replicas}, with {ranks.world} processes under {ranks.sharing}; it must "
                "divide their number and needs FSDP2 (pipelines/accelerate/fsdp2.yaml)"
            )
        if config.threads:
            torch.set_num_threads(config.threads)
        cuda = torch.cuda.is_available()
        return_freed_memory()
        tokens = config.tokens_per_batch if cuda else min(config.tokens_per_batch, CPU_TOKENS)
        device = ranks.device or torch.device("cuda" if cuda else "cpu")
        return cls(
            device=device,
            mixed=config.dtype == "bfloat16",
            tokens_per_batch=tokens,
            ranks=ranks,
            replicas=launch.replicas,
            defer=launch.gradient_sync == "step",
        )
