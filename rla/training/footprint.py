"""Memory of a pass that trains, by the sizes of the model: what a pass may hold by default, and `rla plan-memory`'s.

Activations of a token in a layer, with H, I, Q, K the widths of the residual stream, of the feed-forward layer, of all
heads and of all key heads, r bytes of the residual stream and b of products:

    4 H r of both norms, 2 H b, (3 Q + 2 K) b of the attention, 4 I b of the feed-forward layer

A layer that is computed again in the backward pass keeps its input, H r, alone.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any, NamedTuple

CPU_PASS_BYTES, GPU_PASS_BYTES = 2 << 30, 8 << 30  # of activations


class LayerSizes(NamedTuple):
    """How many layers, and the widths H, I, Q and K."""

    layers: int
    hidden: int
    intermediate: int
    queries: int
    keys: int


def layer_sizes(config: Any) -> LayerSizes:
    """Of a model's configuration, of the part that reads text. Sizes that it does not name are the usual ones."""
    text = config.get_text_config()
    hidden, heads = text.hidden_size, text.num_attention_heads
    width = getattr(text, "head_dim", None) or hidden // heads
    key_heads = getattr(text, "num_key_value_heads", None) or heads
    intermediate = getattr(text, "intermediate_size", None) or 4 * hidden
    return LayerSizes(text.num_hidden_layers, hidden, intermediate, heads * width, key_heads * width)


def token_bytes(sizes: LayerSizes, *, product: int = 4, residual: int = 4, recomputed: bool) -> int:
    """Activations of a token, with the largest gradients of the backward pass. `product` and `residual`: bytes of an
    element; `recomputed`: with gradient checkpointing.
    """
    layers, hidden, intermediate, queries, keys = sizes
    layer = hidden * (4 * residual + 2 * product) + product * (3 * queries + 2 * keys + 4 * intermediate)
    kept = layers * hidden * residual + layer if recomputed else layers * layer
    return kept + product * (2 * intermediate + hidden)


def return_freed_memory() -> None:
    """Have glibc give every freed block of 1 MiB and more back to the system; elsewhere nothing changes.

    By itself it raises that limit to 32 MiB when such blocks are freed. The holes between saved activations then add up
    to as much again as these take. A pass costs about a tenth more time.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD


def pass_tokens(sizes: LayerSizes, *, recomputed: bool, cuda: bool) -> int:
    """The tokens of a pass in fp32 that the default bound allows; at least one."""
    return max(1, (GPU_PASS_BYTES if cuda else CPU_PASS_BYTES) // token_bytes(sizes, recomputed=recomputed))
