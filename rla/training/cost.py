"""The memory of a training pass, by the sizes of the model: activations of a token in a layer.

With H, I, Q, K the widths of the residual stream, of the feed-forward layer, of all heads and of all key heads, r bytes
per element of the residual stream and b of products:

    4 H r of both norms, 2 H b, (3 Q + 2 K) b of the attention, 4 I b of the feed-forward layer

A layer that is recomputed in the backward pass keeps only its input, H r.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any, NamedTuple

CPU_PASS_BYTES, GPU_PASS_BYTES = 2 << 30, 8 << 30  # of activations


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
