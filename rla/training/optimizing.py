"""Backward passes and optimizer steps, and access to whole weights and moments however the ranks hold them.

`Plain` is for a model that every rank has whole, and for FSDP2, whose parameters are DTensors; `Zero` is the same for
DeepSpeed. The loss of a step is a sum over its forward passes on all ranks: gradients are added, never averaged.

FSDP2 (`spread`): `launch.replicas` n makes n groups of ranks (HSDP): a group holds the whole model, so weights are
gathered within it, on one node for instance, and gradients alone are added over groups. A model on the meta device is
spread as it is; its parameters then get memory for this rank's part, which the caller fills from files.

DeepSpeed (`Zero`): the engine adds up, clips and steps; its configuration is the launcher's, which
`accelerate launch --config_file pipelines/accelerate/deepspeed_zero3.yaml` hands over. ZeRO averages over ranks,
so the loss is multiplied with their number. Whole weights and moments come from DeepSpeed's own accessors, so that a
train state is the same files whatever wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from rla.errors import UserError
from rla.training.ranks import Ranks, Sharing
from rla.training.tensors import StoredTensor

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from rla.config.training import TrainConfig
    from rla.training.logprobs import TokenScorer
    from rla.training.ranks import Compute

ADAM_KEYS = ("step", "exp_avg", "exp_avg_sq")  # names of its state
Moments = dict[str, Tensor]
MOMENT_KEYS = ADAM_KEYS[1:]


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW; of parameters on a GPU its fused form, which needs no memory of its own."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        parameters,
        lr=config.rate,
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
        fused=parameters[0].device.type == "cuda",
    )


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
        return Zero(scorer, config, compute=compute)
    if compute.ranks.sharing is Sharing.FSDP:
        spread(scorer, compute)
    return Plain(scorer, make_optimizer(scorer, config), ranks=compute.ranks, defer=compute.defer)


def _whole(value: Tensor) -> Tensor:
    whole: Tensor = value.full_tensor() if isinstance(value, DTensor) else value
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


class Zero:
    """One engine for the scorer; torch's AdamW is the optimizer that it spreads."""

    def __init__(self, scorer: TokenScorer, config: TrainConfig, *, compute: Compute) -> None:
        import deepspeed
        from accelerate.utils import DeepSpeedPlugin

        settings: dict[str, Any] = {
            **DeepSpeedPlugin().deepspeed_config,
            "train_micro_batch_size_per_gpu": 1,
            "train_batch_size": compute.ranks.world,
            "gradient_accumulation_steps": 1,  # the loop says which pass is a step's last
            "gradient_clipping": config.max_grad_norm,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "steps_per_print": 1 << 30,
        }
        if not settings["zero_optimization"]["stage"]:
            raise UserError("DeepSpeed: zero_stage 0 spreads nothing; take 1, 2 or 3, or pipelines/accelerate/ddp.yaml")
        self.ranks = compute.ranks
        self.engine, *_ = deepspeed.initialize(
            model=scorer, optimizer=make_optimizer(scorer, config), config=settings, dist_init_required=False
        )
        self.module: nn.Module = self.engine
        self.stepped = False

    def backward(self, loss: Tensor, *, last: bool) -> None:
        self.engine.set_gradient_accumulation_boundary(is_boundary=last)
        self.engine.backward(loss * self.ranks.world)

    def step(self, *, lr: float, max_norm: float) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self.engine.step()  # does nothing where the gradient is not finite; the norm is infinite then
        norm = float(self.engine.get_global_grad_norm())
        self.stepped = self.stepped or norm < float("inf")
        return norm

    def settle(self) -> None:
        """The engine keeps parameters and their parts apart by itself."""

    def weight(self, parameter: nn.Parameter) -> Tensor:
        from deepspeed.utils import safe_get_full_fp32_param

        value: Tensor = safe_get_full_fp32_param(parameter)
        return value.detach()

    def set_weight(self, parameter: nn.Parameter, stored: StoredTensor) -> None:
        from deepspeed.runtime.zero import GatheredParameters
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_local_fp32_param

        value = stored.read().to(self.engine.device)
        # The parameter that computes and the fp32 one that is stepped are two: each is set.
        with torch.no_grad(), GatheredParameters([parameter], modifier_rank=0, enabled=hasattr(parameter, "ds_id")):
            parameter.data.copy_(value)
        if not parameter.requires_grad:
            return
        if hasattr(parameter, "ds_id"):
            safe_set_local_fp32_param(parameter, self._part(parameter, value))
        else:
            safe_set_full_fp32_param(parameter, value.float())

    def moments(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        from deepspeed.utils import safe_get_full_optimizer_state

        if not self.stepped:
            return {}
        step = next(state["step"] for state in self._optimizer.state.values() if "step" in state)
        whole = {key: safe_get_full_optimizer_state(parameter, key).detach() for key in MOMENT_KEYS}
        return {"step": torch.as_tensor(float(step)), **whole}

    def set_moments(self, parameter: nn.Parameter, values: Mapping[str, StoredTensor]) -> None:
        from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

        self._make_state()
        for key in MOMENT_KEYS:
            value = values[key].read().to(self.engine.device, torch.float32)
            if hasattr(parameter, "ds_id"):
                safe_set_local_optimizer_state(parameter, self._part(parameter, value), key)
            else:
                safe_set_full_optimizer_state(parameter, value, key)
        for state in self._optimizer.state.values():
            state["step"] = torch.as_tensor(float(values["step"].read()))

    def _part(self, parameter: Any, value: Tensor) -> Tensor:
        """What ZeRO 3 keeps of `value` in this rank; sizes that the ranks do not divide are filled up."""
        size = parameter.ds_tensor.numel()
        filled = nn.functional.pad(value.flatten().float(), (0, size * self.ranks.world - value.numel()))
        return filled[size * self.ranks.rank : size * (self.ranks.rank + 1)]

    @property
    def _optimizer(self) -> torch.optim.Optimizer:
        """torch's, which ZeRO drives."""
        found: torch.optim.Optimizer = self.engine.optimizer.optimizer
        return found

    def _make_state(self) -> None:
        """Adam makes its moments at the first step; to set them, they must be there."""
        if self.stepped:
            return
        zero = self.engine.optimizer
        parts = getattr(zero, "fp32_partitioned_groups_flat", None) or zero.single_partition_of_fp32_groups
        for part in parts:
            zeros = {key: torch.zeros_like(part.data) for key in MOMENT_KEYS}
            self._optimizer.state[part] = {"step": torch.zeros(()), **zeros}
        if hasattr(zero, "_lazy_init_hp_params_optimizer_state"):  # ZeRO 1 and 2 map them to parameters
            zero._lazy_init_hp_params_optimizer_state()
        self.stepped = True
