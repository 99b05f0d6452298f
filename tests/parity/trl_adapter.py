"""TRL's GRPO loss without its trainer: every private name of TRL that the parity test reaches is here.

`GRPOTrainer._compute_loss` reads settings from the trainer object; `GrpoLoss` is such an object with the
settings of one optimizer step on one process and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from trl import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head


class GrpoLoss(GRPOTrainer):  # type: ignore[misc]
    """The loss of TRL 1.16 with clipping and, where `beta` is not 0, KL to a reference.

    `loss_type`: `dapo` is the mean over all tokens, `grpo` that over sequences, `dr_grpo` divides by sequences times
    `length`. `level`: token or sequence. `delta`: the second bound of a ratio.
    """

    def __init__(
        self,
        *,
        clip_low: float,
        clip_high: float,
        beta: float,
        loss_type: str = "dapo",
        level: str = "token",
        delta: float | None = None,
        length: int = 0,
    ) -> None:
        self.accelerator = Accelerator(cpu=True)
        self.model = nn.Identity().train()
        self.args = SimpleNamespace(delta=delta, use_bias_correction_kl=False, steps_per_generation=1)
        self.beta, self.epsilon_low, self.epsilon_high = beta, clip_low, clip_high
        self.loss_type, self.importance_sampling_level = loss_type, level
        self.max_completion_length = length
        self.top_entropy_quantile, self.off_policy_mask_threshold = 1.0, None
        self.use_vllm = self.aux_loss_enabled = self._entropy_bonus_enabled = False
        self.current_gradient_accumulation_steps = 1
        self._metrics = {"train": defaultdict(list)}

    def __call__(self, model: nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        """Loss with gradient, and TRL's own metrics: `kl`, `entropy`, `clip_ratio/low_mean` and so on."""
        self._metrics["train"].clear()
        inputs = {**inputs, "num_items_in_batch": inputs["completion_mask"].sum()}
        loss = self._compute_loss(model, inputs)
        return loss, {name: values[-1] for name, values in self._metrics["train"].items()}


class GivenLogps(GrpoLoss):
    """The same loss on log-probabilities that are handed over instead of computed by a model."""

    def __init__(self, *, logps: Tensor, **settings: Any) -> None:
        super().__init__(**settings)
        self.logps = logps

    def _get_per_token_logps_and_entropies(self, *_: Any, **__: Any) -> tuple[Tensor, Tensor, None]:
        return self.logps, torch.zeros_like(self.logps), None


def with_fused_head(model: Any, *, temperature: float) -> Any:
    """`model` with the head that `GRPOTrainer` gives it: log-probabilities at the sampling temperature."""
    add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy"))
    return model
