"""How fast an update was: tokens a second, and the share of the device's matrix rate that the model's own work used.

    model FLOPs = 6 * (weights of the layers) * tokens      forward 2, backward 4 (frozen: 2), per weight and token
                + 6 * hidden * vocabulary * loss tokens     the output layer runs on loss tokens alone
                + 12 * layers * heads * width * pairs       causal attention: L^2 / 2 pairs in a sequence of L tokens;
                                                            of branches each token sees the prompt and its own branch
    utilisation = model FLOPs / seconds / measured matrix rate

Recomputation (gradient checkpointing) is not the model's work; a window is counted as full attention, and what a vision
tower computes is left out. The rate is that of square products in the precision of the forward pass, measured once:
peak figures of data sheets are not reached by any product. (PaLM, appendix B.)
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from rla.models.sight import sees, vision_tower

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SIZES = {"cpu": 768, "cuda": 8192}
REPEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one token, one loss token and one pair of tokens cost, in FLOPs of a forward and a backward pass."""

    token: float
    loss_token: float
    pair: float

    @classmethod
    def of(cls, model: PreTrainedModel) -> Work:
        text = model.config.get_text_config()
        inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
        aside = {id(inputs.weight), id(outputs.weight)}
        aside |= {id(weight) for weight in vision_tower(model).parameters()} if sees(model) else set()
        layers = [weight for weight in model.parameters() if id(weight) not in aside]
        passes = sum((6 if weight.requires_grad else 4) * weight.numel() for weight in layers)
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        attention = 12.0 * text.num_hidden_layers * text.num_attention_heads * width
        return cls(token=float(passes), loss_token=6.0 * outputs.weight.numel(), pair=attention)

    def flops(self, *, tokens: int, loss_tokens: int, pairs: float) -> float:
        """Of one update."""
        return self.token * tokens + self.loss_token * loss_tokens + self.pair * pairs


class Stopwatch:
    """The seconds spent inside of it, over all times that it was entered."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self._started


@cache
def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """FLOPs a second of a square matrix product, the best of a few."""
    size = SIZES.get(device, SIZES["cpu"])
    # A generator of their own: the training's random state must not move. Equal numbers would be easy for a GPU.
    draw = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(size, size, generator=draw, device=device).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(REPEATS + 1):
        _wait(device)
        started = time.perf_counter()
        left @ right
        _wait(device)
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
