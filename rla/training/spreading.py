"""FSDP2: which modules are gathered together, over which mesh, and parameters that never were whole in this process.

`launch.replicas` n makes n groups of ranks (HSDP): a group holds the whole model, so weights are gathered within it, on
one node for instance, and gradients alone are added over groups. A model on the meta device is spread as it is; its
parameters then get memory for this rank's part, which the caller fills from files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from rla.errors import UserError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from rla.training.compute import Compute
    from rla.training.logprobs import TokenScorer


def spread(scorer: TokenScorer, compute: Compute) -> None:
    """A unit for each block of the model, and one for all the rest with the scorer as its root.

    The output layer belongs to the root, because the scorer uses its weight without calling it.
    """
    from accelerate.utils import FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin()
    if plugin.fsdp_version != 2:
        raise UserError("fsdp_config: fsdp_version is not 2; take pipelines/accelerate/fsdp2.yaml as a model")
    settings: dict[str, Any] = {
        "mesh": mesh_of(compute),
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
    give_memory(scorer, torch.device("cpu") if isinstance(plugin.cpu_offload, CPUOffloadPolicy) else compute.device)


def mesh_of(compute: Compute) -> DeviceMesh:
    """All ranks in a row, or (groups, ranks of a group)."""
    from torch.distributed.device_mesh import init_device_mesh

    ranks = compute.ranks.world
    if compute.replicas == 1:
        return init_device_mesh(compute.device.type, (ranks,))
    shape = (compute.replicas, ranks // compute.replicas)
    return init_device_mesh(compute.device.type, shape, mesh_dim_names=("replicate", "shard"))


def give_memory(module: nn.Module, device: torch.device) -> None:
    """Parameters on the meta device become empty ones on `device`; tied ones stay one. All others stay as they are."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.is_meta:
                if parameter not in made:
                    empty = torch.empty_like(parameter, device=device)
                    made[parameter] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
                setattr(part, name, made[parameter])
