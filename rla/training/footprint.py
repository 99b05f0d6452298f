"""Memory of a pass that trains, by the sizes of the model: what a pass may hold by default, and `rla plan-memory`'s.

Activations of a token in a layer, with H, I, Q, K the widths of the residual stream, of the feed-forward layer, of all
heads and of all key heads, r bytes of the residual stream and b of products:

    4 H r of both norms, 2 H b, (3 Q + 2 K) b of the attention, 4 I b of the feed-forward layer

A layer that is computed again in the backward pass keeps its input, H r, alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

CPU_PASS_BYTES, GPU_PASS_BYTES = 2 << 30, 8 << 30  # of activations


class Sizes(Protocol):
    """Of a model's layers: the widths above, and their number."""

    @property
    def hidden(self) -> int: ...
    @property
    def intermediate(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def queries(self) -> int: ...
    @property
    def keys(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSizes:
    """`Sizes` of a loaded model."""

    hidden: int
    intermediate: int
    layers: int
    queries: int
    keys: int

    @classmethod
    def of(cls, config: Any) -> LayerSizes:
        """Of a model's configuration, of the part that reads text. Sizes that it does not name are the usual ones."""
        text = config.get_text_config()
        hidden, heads = text.hidden_size, text.num_attention_heads
        width = getattr(text, "head_dim", None) or hidden // heads
        return cls(
            hidden=hidden,
            intermediate=getattr(text, "intermediate_size", None) or 4 * hidden,
            layers=text.num_hidden_layers,
            queries=heads * width,
            keys=(getattr(text, "num_key_value_heads", None) or heads) * width,
        )


def token_bytes(sizes: Sizes, *, product: int, residual: int, recomputed: bool) -> int:
    """Activations of a token, with the largest gradients of the backward pass. `product` and `residual`: bytes of an
    element; `recomputed`: with gradient checkpointing.
    """
    hidden = sizes.hidden * (4 * residual + 2 * product)
    layer = hidden + product * (3 * sizes.queries + 2 * sizes.keys + 4 * sizes.intermediate)
    kept = sizes.layers * sizes.hidden * residual + layer if recomputed else sizes.layers * layer
    return kept + product * (2 * sizes.intermediate + sizes.hidden)


def pass_tokens(sizes: Sizes, *, recomputed: bool, cuda: bool) -> int:
    """The tokens of a pass in fp32 that the default bound allows; at least one."""
    room = GPU_PASS_BYTES if cuda else CPU_PASS_BYTES
    return max(1, room // token_bytes(sizes, product=4, residual=4, recomputed=recomputed))
