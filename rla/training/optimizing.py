"""Backward passes and optimizer steps, and access to whole weights and moments however the ranks hold them.

`Plain` is for a model that every rank has whole, and for FSDP2, whose parameters are DTensors; `rla.training.zero`
is the same for DeepSpeed. The loss of a step is a sum over its forward passes on all ranks: gradients are added,
never averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from rla.errors import UserError
from rla.training.adam import make_optimizer
from rla.training.ranks import Ranks, Sharing

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

    def set_weight(self, parameter: nn.Parameter, value: Tensor) -> None: ...

    def moments(self, parameter: nn.Parameter) -> Moments:
        """By the names of Adam's state; empty before the first step."""

    def set_moments(self, parameter: nn.Parameter, values: Mapping[str, Tensor]) -> None: ...


class Plain:
    """torch's AdamW on parameters that are whole or DTensors."""

    def __init__(self, scorer: TokenScorer, optimizer: torch.optim.Optimizer, *, ranks: Ranks) -> None:
        self.module: nn.Module = scorer
        self.optimizer = optimizer
        self.ranks = ranks
        self.parameters: Sequence[nn.Parameter] = [one for one in scorer.parameters() if one.requires_grad]

    def backward(self, loss: Tensor, *, last: bool) -> None:
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

    def set_weight(self, parameter: nn.Parameter, value: Tensor) -> None:
        with torch.no_grad():
            parameter.copy_(_placed(value, like=parameter))

    def moments(self, parameter: nn.Parameter) -> Moments:
        return {key: _whole(value.detach()) for key, value in self.optimizer.state.get(parameter, {}).items()}

    def set_moments(self, parameter: nn.Parameter, values: Mapping[str, Tensor]) -> None:
        fused = self.optimizer.defaults["fused"]
        self.optimizer.state[parameter] = {
            key: value.to(parameter.device if fused else "cpu") if key == "step" else _placed(value, like=parameter)
            for key, value in values.items()
        }


def make_optimizing(scorer: TokenScorer, config: TrainConfig, compute: Compute) -> Optimizing:
    """As the launcher's configuration says."""
    if compute.ranks.sharing is Sharing.DEEPSPEED:
        from rla.training.zero import Zero

        return Zero(scorer, config, compute=compute)
    if compute.ranks.sharing is Sharing.FSDP:
        _spread(scorer, compute)
    return Plain(scorer, make_optimizer(scorer, config), ranks=compute.ranks)


def _spread(scorer: TokenScorer, compute: Compute) -> None:
    """FSDP2: a unit for each block of the model, and one for all the rest with the scorer as its root.

    The output layer belongs to the root, because the scorer uses its weight without calling it.
    """
    from accelerate.utils import FullyShardedDataParallelPlugin
    from torch.distributed.device_mesh import init_device_mesh

    plugin = FullyShardedDataParallelPlugin()
    if plugin.fsdp_version != 2:
        raise UserError("fsdp_config: fsdp_version is not 2; take pipelines/accelerate/fsdp2.yaml as a model")
    settings: dict[str, Any] = {
        "mesh": init_device_mesh(compute.device.type, (compute.ranks.world,)),
        "reshard_after_forward": plugin.reshard_after_forward is not False,
        "offload_policy": plugin.cpu_offload,
        "mp_policy": plugin.mixed_precision_policy or MixedPrecisionPolicy(),
    }
    if compute.mixed:
        half, full = torch.bfloat16, torch.float32
        settings["mp_policy"] = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=full, cast_forward_inputs=False)
    names = set(getattr(scorer.model, "_no_split_modules", None) or ())
    blocks = [module for module in scorer.modules() if type(module).__name__ in names]
    for module in [*blocks, scorer]:
        unit: Any = fully_shard(module, **settings)
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)  # Gloo knows no other


def _whole(value: Tensor) -> Tensor:
    if not isinstance(value, DTensor):
        return value
    whole: Tensor = value.full_tensor()
    return whole


def _placed(value: Tensor, *, like: Tensor) -> Tensor:
    """On the device of `like`, and of a DTensor this rank's part."""
    value = value.to(like.device, like.dtype)
    if not isinstance(like, DTensor):
        return value
    found = distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
    if found.device == like.device:
        return found
    # Offloaded: a mesh of GPUs whose parts lie in the machine's memory.
    local = found.to_local().to(like.device)
    return DTensor.from_local(local, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())
