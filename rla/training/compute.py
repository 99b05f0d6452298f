"""Where training runs: device, precision and the size of a forward pass. Accelerators enter here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rla.config.training import TrainConfig
from rla.training.ranks import Ranks

CPU_TOKENS = 2048  # a larger forward pass leaves the caches: a third slower for a tiny model


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Where tensors live and in which precision the forward pass runs."""

    device: torch.device
    mixed: bool
    tokens_per_batch: int
    ranks: Ranks

    @classmethod
    def choose(cls, config: TrainConfig, ranks: Ranks) -> Compute:
        """CUDA where there is one; bf16 autocast there only: on a CPU it saves nothing."""
        if config.threads:
            torch.set_num_threads(config.threads)
        cuda = torch.cuda.is_available()
        tokens = config.tokens_per_batch if cuda else min(config.tokens_per_batch, CPU_TOKENS)
        device = ranks.device or torch.device("cuda" if cuda else "cpu")
        return cls(device=device, mixed=cuda and config.dtype == "bfloat16", tokens_per_batch=tokens, ranks=ranks)
