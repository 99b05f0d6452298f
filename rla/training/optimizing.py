"""Backward passes and optimizer steps, and access to whole weights and moments however the ranks hold them.

`Plain` is for a model that every rank has whole, and for FSDP2, whose parameters are DTensors; `rla.training.zero`
is the same for DeepSpeed. The loss of a step is a sum over its forward passes on all ranks: gradients are added,
never averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard

from rla.training.adam import make_optimizer
from rla.training.ranks import Ranks, Sharing
from rla.training.tensors import StoredTensor

if TYPE_CHECKING:
    from rla.config.training import TrainConfig
    from rla.training.compute import Compute
    from rla.training.logprobs import TokenScorer

Moments = dict[str, Tensor]


class Optimizing(Protocol):
    """What the loop asks for. `module` takes a batch; `whole` and the like are common calls of all ranks."""

    module: nn.Module

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Of one forward pass; `last`: the rank's last one of the step."""

    def step(self, *, lr: float, max_norm: float) -> float:
        """One optimizer step on the gradients of all ranks, clipped; their norm before."""

    def settle(self) -> None:
        """After forward passes: parameters are what is stored, not what the last pass gathered."""

    def weight(self, parameter: nn.Parameter) -> Tensor: ...

    def set_weight(self, parameter: nn.Parameter, stored: StoredTensor) -> None: ...

    def moments(self, parameter: nn.Parameter) -> Moments:
        """By the names of Adam's state; empty before the first step."""

    def set_moments(self, parameter: nn.Parameter, values: Mapping[str, StoredTensor]) -> None: ...


class Plain:
    """torch's AdamW on parameters that are whole or DTensors."""

    def __init__(
        self, scorer: TokenScorer, optimizer: torch.optim.Optimizer, *, ranks: Ranks, defer: bool = False
    ) -> None:
        self.module: nn.Module = scorer
        self.optimizer = optimizer
        self.ranks = ranks
        self.defer = defer
        self.parameters: Sequence[nn.Parameter] = [one for one in scorer.parameters() if one.requires_grad]

    def backward(self, loss: Tensor, *, last: bool) -> None:
        if self.defer and isinstance(self.module, FSDPModule):
            self.module.set_requires_gradient_sync(last)
        loss.backward()

    def step(self, *, lr: float, max_norm: float) -> float:
        if not self.ranks.sharded:
            self.ranks.add_gradients(self.parameters)
        norm = float(_whole(torch.nn.utils.clip_grad_norm_(self.parameters, max_norm)))
        if norm < float("inf"):
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def settle(self) -> None:
        for module in self.module.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def weight(self, parameter: nn.Parameter) -> Tensor:
        return _whole(parameter.detach())

    def set_weight(self, parameter: nn.Parameter, stored: StoredTensor) -> None:
        with torch.no_grad():
            parameter.copy_(placed(stored, like=parameter))

    def moments(self, parameter: nn.Parameter) -> Moments:
        return {key: _whole(value.detach()) for key, value in self.optimizer.state.get(parameter, {}).items()}

    def set_moments(self, parameter: nn.Parameter, values: Mapping[str, StoredTensor]) -> None:
        where = parameter.device if self.optimizer.defaults["fused"] else "cpu"
        self.optimizer.state[parameter] = {
            key: stored.read().to(where) if key == "step" else placed(stored, like=parameter)
            for key, stored in values.items()
        }


def make_optimizing(scorer: TokenScorer, config: TrainConfig, compute: Compute) -> Optimizing:
    """As the launcher's configuration says."""
    if compute.ranks.sharing is Sharing.DEEPSPEED:
        from rla.training.zero import Zero

        return Zero(scorer, config, compute=compute)
    if compute.ranks.sharing is Sharing.FSDP:
        from rla.training.spreading import spread

        spread(scorer, compute)
    return Plain(scorer, make_optimizer(scorer, config), ranks=compute.ranks, defer=compute.defer)


def _whole(value: Tensor) -> Tensor:
    if not isinstance(value, DTensor):
        return value
    whole: Tensor = value.full_tensor()
    return whole


def placed(stored: StoredTensor, *, like: Tensor) -> Tensor:
    """On the device of `like`; of a DTensor this rank's rows, which alone are read."""
    if not isinstance(like, DTensor):
        return stored.read().to(like.device, like.dtype)
    local = stored.rows(*own_rows(like)).to(like.to_local().device, like.dtype)
    return DTensor.from_local(
        local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def own_rows(value: DTensor) -> tuple[int, int]:
    """The rows (low, high) that this rank holds of a tensor that is spread over its first dimension."""
    spread = [number for number, placement in enumerate(value.placements) if isinstance(placement, Shard)]
    if not spread:
        return 0, value.shape[0]
    [axis] = spread
    assert value.placements[axis] == Shard(0)
    return chunk_bounds(value.shape[0], value.device_mesh.size(axis), value.device_mesh.get_local_rank(axis))


def chunk_bounds(size: int, count: int, number: int) -> tuple[int, int]:
    """Of `torch.chunk`'s parts of `size` rows the one of this number: all as large as the first, but for the last."""
    each = -(-size // count)
    return min(size, each * number), min(size, each * (number + 1))
