"""AdamW over the parameters that train, whoever spreads it over processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from rla.config.training import TrainConfig

ADAM_KEYS = ("step", "exp_avg", "exp_avg_sq")  # names of its state


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW; of parameters on a GPU its fused form, which needs no memory of its own."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        parameters,
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
        fused=parameters[0].device.type == "cuda",
    )
