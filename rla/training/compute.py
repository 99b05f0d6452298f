"""Where training runs: device, precision and the size of a forward pass. Accelerators enter here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rla.config.sections import LaunchConfig
from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.training.ranks import Ranks, Sharing

CPU_TOKENS = 2048  # a larger forward pass leaves the caches: a third slower for a tiny model


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
        """CUDA where there is one; bf16 autocast there only: on a CPU it saves nothing.

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
        tokens = config.tokens_per_batch if cuda else min(config.tokens_per_batch, CPU_TOKENS)
        device = ranks.device or torch.device("cuda" if cuda else "cpu")
        return cls(
            device=device,
            mixed=cuda and config.dtype == "bfloat16",
            tokens_per_batch=tokens,
            ranks=ranks,
            replicas=launch.replicas,
            defer=launch.gradient_sync == "step",
        )
