"""The share of a device's matrix rate that an optimizer step used (PaLM, appendix B):

    model FLOPs = 6 * (weights of the layers) * tokens      forward 2, backward 4 (frozen: 2), per weight and token
                + 6 * hidden * vocabulary * loss tokens     the output layer runs on loss tokens alone
                + 12 * layers * heads * width * pairs       causal attention: L^2 / 2 pairs in a sequence of L tokens
    utilisation = model FLOPs / seconds / measured matrix rate

Recomputation is not the model's work, a window counts as full attention, and the vision encoder is left out. The rate
is measured once on square products in the precision of the forward pass: no product reaches the peak of a data sheet.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from transformers import PreTrainedModel

from rla.pictures.encoder import has_vision_encoder, vision_encoder
from rla.training.loop import PreparedStage

PRODUCT_SIZES = {"cpu": 768, "cuda": 8192}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """FLOPs of a forward and a backward pass for one token, one loss token and one pair of tokens."""

    token: float
    loss_token: float
    pair: float

    @classmethod
    def of(cls, model: PreTrainedModel) -> Work:
        text = model.config.get_text_config()
        inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
        excluded = {id(inputs.weight), id(outputs.weight)}
        if has_vision_encoder(model):
            excluded |= {id(weight) for weight in vision_encoder(model).parameters()}
        layers = [weight for weight in model.parameters() if id(weight) not in excluded]
        passes = sum((6 if weight.requires_grad else 4) * weight.numel() for weight in layers)
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        attention = 12.0 * text.num_hidden_layers * text.num_attention_heads * width
        return cls(token=float(passes), loss_token=6.0 * outputs.weight.numel(), pair=attention)

    def flops(self, *, tokens: int, loss_tokens: int, pairs: float) -> float:
        return self.token * tokens + self.loss_token * loss_tokens + self.pair * pairs


def utilisation(stage: PreparedStage, metrics: Mapping[str, Any]) -> float:
    """Of an update on all sequences of the stage, none of which has branches, with the `metrics` that it returned."""
    pairs = sum(length**2 / 2 for length in stage.sequences.stats.lengths)
    work = Work.of(stage.scorer.model)
    flops = work.flops(tokens=metrics["tokens"], loss_tokens=metrics["loss_tokens"], pairs=pairs)
    rate = matrix_rate(stage.compute.device.type, torch.bfloat16 if stage.compute.mixed else torch.float32)
    return round(flops / metrics["seconds"] / rate, 4)


@cache
def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """FLOPs a second of a square matrix product, the best of four."""
    size = PRODUCT_SIZES.get(device, PRODUCT_SIZES["cpu"])
    # A generator of its own: the training's random state must not move. Constant numbers would be too easy for a GPU.
    draw = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(size, size, generator=draw, device=device).to(dtype) for _ in range(2))
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    best = float("inf")
    for _ in range(4):
        wait()
        started = time.perf_counter()
        left @ right
        wait()
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best
