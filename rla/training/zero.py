"""DeepSpeed's ZeRO behind `Optimizing`: the engine adds up, clips and steps; its configuration is the launcher's.

`accelerate launch --config_file pipelines/accelerate/deepspeed_zero3.yaml` hands it over. ZeRO averages over ranks,
so the loss is multiplied with their number. Whole weights and moments come from DeepSpeed's own accessors, so that a
train state is the same files whatever wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rla.errors import UserError
from rla.training.adam import make_optimizer
from rla.training.tensors import StoredTensor

if TYPE_CHECKING:
    from rla.config.training import TrainConfig
    from rla.training.compute import Compute
    from rla.training.logprobs import TokenScorer

MOMENTS = ("exp_avg", "exp_avg_sq")


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
        whole = {key: safe_get_full_optimizer_state(parameter, key).detach() for key in MOMENTS}
        return {"step": torch.as_tensor(float(step)), **whole}

    def set_moments(self, parameter: nn.Parameter, values: Mapping[str, StoredTensor]) -> None:
        from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

        self._make_state()
        for key in MOMENTS:
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
            zeros = {key: torch.zeros_like(part.data) for key in MOMENTS}
            self._optimizer.state[part] = {"step": torch.zeros(()), **zeros}
        if hasattr(zero, "_lazy_init_hp_params_optimizer_state"):  # ZeRO 1 and 2 map them to parameters
            zero._lazy_init_hp_params_optimizer_state()
        self.stepped = True
