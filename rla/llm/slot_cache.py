"""The keys and values of all slots, as a cache that transformers' models write to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rla.llm.attention import AttentionPlan


class SlotCache(Cache):
    """Keys and values, each [layers, slots, context, key heads, width], written through a Plan."""

    def __init__(self, *, config: Any, slots: int, context: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(layers=[])
        heads = config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        key_heads = getattr(config, "num_key_value_heads", None) or heads
        shape = (2, config.num_hidden_layers, slots, context, key_heads, width)
        self.store = torch.zeros(shape, dtype=dtype, device=device)
        self.plan: AttentionPlan | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write [1, K, T, D] to the plan's cells; return the layer's whole store for the attention."""
        if self.plan is None:
            raise RuntimeError("SlotCache.update before a plan was set")
        key, value = self.store[0, layer_idx], self.store[1, layer_idx]
        key.flatten(0, 1).index_copy_(0, self.plan.cells, key_states[0].transpose(0, 1))
        value.flatten(0, 1).index_copy_(0, self.plan.cells, value_states[0].transpose(0, 1))
        return key, value

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions are passed explicitly; a model that asks gets "none so far"."""
        return 0

    def copy(self, *, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of one slot to another."""
        self.store[:, :, target, :length] = self.store[:, :, source, :length]
