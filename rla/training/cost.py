"""The memory and the work of a training pass, by the sizes of the model.

Memory: activations of a token in a layer, with H, I, Q, K the widths of the residual stream, of the feed-forward layer,
of all heads and of all key heads, r bytes per element of the residual stream and b of products:

    4 H r of both norms, 2 H b, (3 Q + 2 K) b of the attention, 4 I b of the feed-forward layer

A layer that is recomputed in the backward pass keeps only its input, H r.

Work: the FLOPs of an update, and the share of the device's matrix rate that they used (PaLM, appendix B):

    model FLOPs = 6 * (weights of the layers) * tokens      forward 2, backward 4 (frozen: 2), per weight and token
                + 6 * hidden * vocabulary * loss tokens     the output layer runs on loss tokens alone
                + 12 * layers * heads * width * pairs       causal attention: L^2 / 2 pairs in a sequence of L tokens;
                                                            in a branch each token sees the prompt and its own branch
    utilisation = model FLOPs / seconds / measured matrix rate

Recomputation is not the model's work, a window counts as full attention, and the vision encoder is left out. The rate
is measured once on square products in the precision of the forward pass: no product reaches the peak of a data sheet.
"""

from __future__ import annotations

import ctypes
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

CPU_PASS_BYTES, GPU_PASS_BYTES = 2 << 30, 8 << 30  # of activations
PRODUCT_SIZES = {"cpu": 768, "cuda": 8192}


class LayerSizes(NamedTuple):
    """The number of layers, and the widths H, I, Q and K."""

    layers: int
    hidden: int
    intermediate: int
    queries: int
    keys: int


def layer_sizes(config: Any) -> LayerSizes:
    """The sizes of the text model of a configuration; the usual ones if it does not name them."""
    text = config.get_text_config()
    hidden, heads = text.hidden_size, text.num_attention_heads
    width = getattr(text, "head_dim", None) or hidden // heads
    key_heads = getattr(text, "num_key_value_heads", None) or heads
    intermediate = getattr(text, "intermediate_size", None) or 4 * hidden
    return LayerSizes(text.num_hidden_layers, hidden, intermediate, heads * width, key_heads * width)


def token_bytes(sizes: LayerSizes, *, product: int = 4, residual: int = 4, recomputed: bool) -> int:
    """Bytes of activations per token, with the largest gradients of the backward pass.

    `product` and `residual` are bytes of an element; `recomputed`: with gradient checkpointing.
    """
    layers, hidden, intermediate, queries, keys = sizes
    layer = hidden * (4 * residual + 2 * product) + product * (3 * queries + 2 * keys + 4 * intermediate)
    kept = layers * hidden * residual + layer if recomputed else layers * layer
    return kept + product * (2 * intermediate + hidden)


def return_freed_memory() -> None:
    """Have glibc return every freed block of 1 MiB and more to the system; other allocators are left as they are.

    By itself glibc raises that limit to 32 MiB once such blocks are freed, and the holes between saved activations then
    take as much memory as the activations. A pass takes about a tenth longer.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD


def pass_tokens(sizes: LayerSizes, *, recomputed: bool, cuda: bool) -> int:
    """The tokens of a pass in fp32 that the default bound allows; at least one."""
    return max(1, (GPU_PASS_BYTES if cuda else CPU_PASS_BYTES) // token_bytes(sizes, recomputed=recomputed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """FLOPs of a forward and a backward pass for one token, one loss token and one pair of tokens."""

    token: float
    loss_token: float
    pair: float

    @classmethod
    def of(cls, model: PreTrainedModel) -> Work:
        from rla.pictures.encoder import has_vision_encoder, vision_encoder

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


@cache
def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """FLOPs a second of a square matrix product, the best of four."""
    import torch

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
