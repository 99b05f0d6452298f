"""Training on several processes: their ranks, the device of each, and the optimizer.

`accelerate launch --config_file pipelines/accelerate/<kind>.yaml -m rla train-policy ...` (or torchrun) starts them.
Every rank reads the same rows and makes the same plan. The forward passes of an optimizer step are divided among the
ranks, gradients are summed, all ranks take the same step, and rank 0 alone writes. The loss weights are computed from
the whole step (`losses.token_weights`), so gradients are added over ranks and never averaged.

    Backend            a whole model on every rank, or FSDP2, whose parameters are DTensors
    _DeepSpeedBackend   ZeRO: the engine sums, clips and steps, configured by the launcher

Both read and write whole tensors, so a train state is the same files under either of them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from rla.config.training import BETA1, TrainConfig
from rla.errors import UserError
from rla.plugins import need_package
from rla.processes import flag, rank, world
from rla.training.cost import return_freed_memory
from rla.training.model import TokenScorer

T = TypeVar("T")
TIMEOUT = timedelta(hours=12)  # the other ranks wait while rank 0 reads shards and writes checkpoints
CPU_TOKENS = 2048  # a larger forward pass leaves the caches: a third slower for a tiny model
MOMENTS = ("exp_avg", "exp_avg_sq")  # keys of Adam's state
ADAM_KEYS = ("step", *MOMENTS)
REPEATED = 2.0  # seconds after which a second Ctrl-C is meant; one key press may arrive twice


class Sharing(StrEnum):
    """How the ranks hold the model."""

    WHOLE = "whole"  # each rank all of it
    FSDP = "fsdp"  # FSDP2: weights, gradients and moments are sharded
    DEEPSPEED = "deepspeed"  # ZeRO, at the stage that its configuration names


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among `world`. Every method but `share` is a collective call of all ranks."""

    rank: int = 0
    world: int = 1
    device: torch.device | None = None  # chosen by the launcher
    sharing: Sharing = Sharing.WHOLE

    @classmethod
    def join(cls) -> Ranks:
        """Meet the other processes of the launcher: NCCL on GPUs, Gloo on CPUs."""
        fsdp, deepspeed = flag("ACCELERATE_USE_FSDP"), flag("ACCELERATE_USE_DEEPSPEED")
        if world() == 1 and not fsdp and not deepspeed:
            return cls()
        if deepspeed:
            need_package("deepspeed", install="rla[deepspeed]", why="the launcher asks for DeepSpeed")
        from accelerate import PartialState

        # Otherwise transformers leaves the weights of all processes but the first empty.
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
        state = PartialState(cpu=not torch.cuda.is_available(), timeout=TIMEOUT)
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

    def share(self, passes: Sequence[list[int]]) -> list[tuple[list[int], bool]]:
        """Every world-th pass, and whether it counts. Passes come longest first, so the shares are balanced.

        With sharded weights a forward pass is collective: a rank that has run out repeats one, which does not count.
        """
        own = [(indices, True) for indices in passes[self.rank :: self.world]]
        if self.sharded and len(own) < -(-len(passes) // self.world):
            own.append((passes[-1], False))
        return own

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in their order."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        distributed.all_gather_object(values, value)
        return values

    def broadcast(self, value: T | None) -> T:
        """The value of rank 0, on every rank."""
        values = [value]
        if self.world > 1:
            distributed.broadcast_object_list(values, src=0)
        assert values[0] is not None
        return values[0]

    def barrier(self) -> None:
        if self.world > 1:
            distributed.barrier()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """The device of the tensors and the precision of the forward pass. Accelerators enter here and nowhere else."""

    device: torch.device
    mixed: bool  # bf16 autocast
    tokens_per_batch: int
    ranks: Ranks
    replicas: int = 1  # groups of ranks that each hold the whole model (HSDP)

    @classmethod
    def choose(cls, config: TrainConfig, ranks: Ranks, *, replicas: int = 1) -> Compute:
        """CUDA if there is one. Raises UserError for replicas that the ranks do not fill, or without FSDP2."""
        if replicas > 1 and (ranks.sharing is not Sharing.FSDP or ranks.world % replicas):
            raise UserError(
                f"launch.replicas is {replicas}, with {ranks.world} processes under {ranks.sharing}; it must "
                "divide their number and needs FSDP2 (pipelines/accelerate/fsdp2.yaml)"
            )
        return_freed_memory()
        cuda = torch.cuda.is_available()
        return cls(
            device=ranks.device or torch.device("cuda" if cuda else "cpu"),
            mixed=config.dtype == "bfloat16",
            tokens_per_batch=config.tokens_per_batch if cuda else min(config.tokens_per_batch, CPU_TOKENS),
            ranks=ranks,
            replicas=replicas,
        )


def make_backend(scorer: TokenScorer, config: TrainConfig, compute: Compute) -> Backend:
    """The backend that the launcher's configuration names."""
    if compute.ranks.sharing is Sharing.DEEPSPEED:
        return _DeepSpeedBackend(scorer, config, ranks=compute.ranks)
    if compute.ranks.sharing is Sharing.FSDP:
        _shard_model(scorer, compute)
    return Backend(scorer, make_optimizer(scorer, config), ranks=compute.ranks)


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW; on a GPU in its fused form, which needs no extra memory."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        parameters,
        lr=config.rate,
        betas=(BETA1, config.beta2),
        weight_decay=config.weight_decay,
        fused=parameters[0].device.type == "cuda",
    )


class Backend:
    """The model and its optimizer: torch's AdamW on parameters that are whole or DTensors.

    Access to weights and moments is collective, and their values are whole tensors.
    """

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer, *, ranks: Ranks) -> None:
        self.module = module  # takes a batch
        self.optimizer = optimizer
        self._ranks = ranks
        self._parameters = [one for one in module.parameters() if one.requires_grad]

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """The backward pass of one forward pass; `last`: this rank's last one of the optimizer step."""
        loss.backward()

    def step(self, *, lr: float, max_norm: float) -> float:
        """One optimizer step on the clipped gradients of all ranks; returns their norm before clipping.

        A norm that is not finite changes no weight.
        """
        for parameter in self._parameters if self._ranks.world > 1 and not self._ranks.sharded else ():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad)
        norm = float(_whole(torch.nn.utils.clip_grad_norm_(self._parameters, max_norm)))
        if norm < float("inf"):
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def reshard(self) -> None:
        """Drop the weights that the last forward pass gathered."""
        for module in self.module.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def weight(self, parameter: nn.Parameter) -> Tensor:
        return _whole(parameter.detach())

    def set_weight(self, parameter: nn.Parameter, value: Tensor) -> None:
        with torch.no_grad():
            parameter.copy_(_sharded(value, like=parameter))

    def moments(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """Adam's state by key; empty before the first step."""
        return {key: _whole(value.detach()) for key, value in self.optimizer.state.get(parameter, {}).items()}

    def set_moments(self, parameter: nn.Parameter, values: Mapping[str, Tensor]) -> None:
        counter = parameter.device if self.optimizer.defaults["fused"] else "cpu"
        own = {
            key: torch.empty_like(parameter.detach()).copy_(_sharded(values[key], like=parameter)) for key in MOMENTS
        }
        self.optimizer.state[parameter] = {"step": values["step"].clone().to(counter), **own}


def _whole(value: Tensor) -> Tensor:
    whole: Tensor = value.full_tensor() if isinstance(value, DTensor) else value
    return whole


def _sharded(value: Tensor, *, like: Tensor) -> Tensor:
    """A whole tensor, which each rank has, as this rank's part if `like` is a DTensor."""
    if not isinstance(like, DTensor):
        return value
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def _shard_model(scorer: TokenScorer, compute: Compute) -> None:
    """FSDP2: one unit for each block of the model, and a root unit for the rest.

    The output layer belongs to the root, because the scorer uses its weight without calling it. With `replicas` weights
    are gathered within a group of ranks, such as a node, and only gradients are summed over groups (HSDP). A model on
    the meta device gets memory for this rank's part, which the caller fills from files.
    """
    from accelerate.utils import FullyShardedDataParallelPlugin
    from torch.distributed.device_mesh import init_device_mesh

    plugin = FullyShardedDataParallelPlugin()
    if plugin.fsdp_version != 2:
        raise UserError("fsdp_config: fsdp_version is not 2; take pipelines/accelerate/fsdp2.yaml as a model")
    ranks, replicas, device = compute.ranks.world, compute.replicas, compute.device.type
    if replicas == 1:
        mesh = init_device_mesh(device, (ranks,))
    else:
        mesh = init_device_mesh(device, (replicas, ranks // replicas), mesh_dim_names=("replicate", "shard"))
    precision = plugin.mixed_precision_policy or MixedPrecisionPolicy()
    if compute.mixed:
        half, full = torch.bfloat16, torch.float32
        precision = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=full, cast_forward_inputs=False)
    settings: dict[str, Any] = {
        "mesh": mesh,
        "reshard_after_forward": plugin.reshard_after_forward is not False,
        "offload_policy": plugin.cpu_offload,
        "mp_policy": precision,
    }
    blocks = set(getattr(scorer.model, "_no_split_modules", None) or ())
    for module in [*(one for one in scorer.modules() if type(one).__name__ in blocks), scorer]:
        unit: Any = fully_shard(module, **settings)
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)  # Gloo can only sum
    materialize(scorer, torch.device("cpu") if isinstance(plugin.cpu_offload, CPUOffloadPolicy) else compute.device)


def materialize(module: nn.Module, device: torch.device) -> None:
    """Give parameters on the meta device empty memory on `device`; tied parameters stay tied."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.is_meta:
                if parameter not in made:
                    empty = torch.empty_like(parameter, device=device)
                    made[parameter] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
                setattr(part, name, made[parameter])


class _DeepSpeedBackend(Backend):
    """DeepSpeed's engine around the scorer; it shards torch's AdamW."""

    def __init__(self, scorer: TokenScorer, config: TrainConfig, *, ranks: Ranks) -> None:
        import deepspeed
        from accelerate.utils import DeepSpeedPlugin

        settings: dict[str, Any] = {
            **DeepSpeedPlugin().deepspeed_config,
            "train_micro_batch_size_per_gpu": 1,
            "train_batch_size": ranks.world,
            "gradient_accumulation_steps": 1,  # the loop says which pass is the last of a step
            "gradient_clipping": config.max_grad_norm,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "steps_per_print": 1 << 30,
        }
        if not settings["zero_optimization"]["stage"]:
            raise UserError("DeepSpeed: zero_stage 0 shards nothing; take 1, 2 or 3, or pipelines/accelerate/ddp.yaml")
        self._ranks = ranks
        self._engine, *_ = deepspeed.initialize(
            model=scorer, optimizer=make_optimizer(scorer, config), config=settings, dist_init_required=False
        )
        self.module: nn.Module = self._engine
        self._adam: torch.optim.Optimizer = self._engine.optimizer.optimizer
        self._stepped = False

    def backward(self, loss: Tensor, *, last: bool) -> None:
        self._engine.set_gradient_accumulation_boundary(is_boundary=last)
        self._engine.backward(loss * self._ranks.world)  # ZeRO averages over ranks

    def step(self, *, lr: float, max_norm: float) -> float:
        for group in self._adam.param_groups:
            group["lr"] = lr
        self._engine.step()  # does nothing if the gradient is not finite; the norm is infinite then
        norm = float(self._engine.get_global_grad_norm())
        self._stepped = self._stepped or norm < float("inf")
        return norm

    def weight(self, parameter: nn.Parameter) -> Tensor:
        from deepspeed.utils import safe_get_full_fp32_param

        value: Tensor = safe_get_full_fp32_param(parameter)
        return value.detach()

    def set_weight(self, parameter: nn.Parameter, value: Tensor) -> None:
        from deepspeed.runtime.zero import GatheredParameters
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_local_fp32_param

        value, zero3 = value.to(self._engine.device), hasattr(parameter, "ds_id")
        # The parameter that computes and its fp32 master are two tensors: each is set.
        with torch.no_grad(), GatheredParameters([parameter], modifier_rank=0, enabled=zero3):
            parameter.data.copy_(value)
        if parameter.requires_grad and zero3:
            safe_set_local_fp32_param(parameter, self._local(parameter, value))
        elif parameter.requires_grad:
            safe_set_full_fp32_param(parameter, value.float())

    def moments(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        from deepspeed.utils import safe_get_full_optimizer_state

        if not self._stepped:
            return {}
        step = next(state["step"] for state in self._adam.state.values() if "step" in state)
        whole = {key: safe_get_full_optimizer_state(parameter, key).detach() for key in MOMENTS}
        return {"step": torch.as_tensor(float(step)), **whole}

    def set_moments(self, parameter: nn.Parameter, values: Mapping[str, Tensor]) -> None:
        from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

        if not self._stepped:  # Adam makes its moments in the first step; to be set, they must exist
            zero = self._engine.optimizer
            for part in getattr(zero, "fp32_partitioned_groups_flat", None) or zero.single_partition_of_fp32_groups:
                zeros = {key: torch.zeros_like(part.data) for key in MOMENTS}
                self._adam.state[part] = {"step": torch.zeros(()), **zeros}
            if hasattr(zero, "_lazy_init_hp_params_optimizer_state"):  # ZeRO 1 and 2 map them to parameters
                zero._lazy_init_hp_params_optimizer_state()
            self._stepped = True
        for key in MOMENTS:
            value = values[key].to(self._engine.device, torch.float32)
            if hasattr(parameter, "ds_id"):
                safe_set_local_optimizer_state(parameter, self._local(parameter, value), key)
            else:
                safe_set_full_optimizer_state(parameter, value, key)
        for state in self._adam.state.values():
            state["step"] = torch.as_tensor(float(values["step"]))

    def _local(self, parameter: Any, value: Tensor) -> Tensor:
        """This rank's part of `value` under ZeRO 3, padded to equal sizes."""
        size = parameter.ds_tensor.numel()
        padded = nn.functional.pad(value.flatten().float(), (0, size * self._ranks.world - value.numel()))
        return padded[size * self._ranks.rank : size * (self._ranks.rank + 1)]


class DeferredInterrupts:
    """Inside the block Ctrl-C is noted, not raised: the loop asks for it when its state is whole. A second one, seconds
    later, ends the process at once. A launcher ends its ranks by SIGTERM, so with several ranks that counts as well.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.asked = False
        self._ranks, self._since = ranks, 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> DeferredInterrupts:
        if current_thread() is main_thread():
            numbers = [signal.SIGINT] if self._ranks.world == 1 else [signal.SIGINT, signal.SIGTERM]
            self._before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked and time.monotonic() - self._since > REPEATED:
            signal.default_int_handler(number, frame)
        self._since = self._since if self.asked else time.monotonic()
        self.asked = True
