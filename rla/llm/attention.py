"""Attention over cache slots, for a forward pass whose single row packs the new tokens of many sequences.

Linear layers see [1, tokens] without padding; here the queries are regrouped by how many new tokens their
sequence has (1, up to 4, up to 16, ...) and attend to the keys of their own slot. Grouped-query heads are
laid out as further queries of their key head, so keys and values are never repeated. Registered with
transformers as one more attention implementation, which any model that follows its attention interface can
use.

Shapes: T new tokens, R sequences of a group, Q queries of each, L keys, S slots, H heads, K key heads, D
width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rla.errors import UserError
from rla.llm.slots import Ints

IMPLEMENTATION = "rla_slots"
KEY_MULTIPLE = 16  # lengths are rounded up: masks stay aligned for the CUDA kernels
MAX_SCORES = 1 << 27  # scores (R * Q * L) of one attention call


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionGroup:
    """R sequences whose Q (padded) queries are attended to in one call."""

    slots: slice | Tensor
    tokens: Tensor  # [R * Q] packed index of each query
    positions: Tensor  # [R, Q]
    keys: int
    masks: dict[int | None, Tensor] = field(default_factory=dict)  # by sliding window

    def mask(self, *, window: int | None, repeat: int, dtype: torch.dtype) -> Tensor:
        """Additive mask [R, 1, repeat * Q, L], the same for every layer with this window."""
        if window not in self.masks:
            rows, queries = self.positions.shape
            key = torch.arange(self.keys, device=self.positions.device)
            hidden = key > self.positions[..., None]
            if window is not None:
                hidden |= key <= self.positions[..., None] - window
            mask = torch.zeros(hidden.shape, dtype=dtype, device=key.device).masked_fill_(hidden, float("-inf"))
            full = mask[:, None].expand(rows, repeat, queries, self.keys)
            self.masks[window] = full.reshape(rows, 1, repeat * queries, self.keys)
        return self.masks[window]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPlan:
    """Where the packed tokens of one forward pass live."""

    groups: list[AttentionGroup]
    order: Tensor  # [T] index of each packed token in the concatenated outputs of the groups
    cells: Tensor  # [T] slot * context + position: where its key and value are written


def make_plan(*, slots: Ints, starts: Ints, counts: Ints, context: int, device: torch.device) -> AttentionPlan:
    """Row i brings `counts[i]` new tokens for slot `slots[i]`, at positions from `starts[i]`."""
    offsets = np.cumsum(counts) - counts
    order = np.empty(int(counts.sum()), dtype=np.int64)
    groups: list[AttentionGroup] = []
    base = 0
    for rows in _buckets(starts, counts):
        group, first = _make_group(slots[rows], starts[rows], counts[rows], offsets[rows], context, device)
        inside = _ranges(counts[rows])
        queries = group.positions.shape[1]
        targets = base + np.repeat(first * queries, counts[rows]) + inside
        order[np.repeat(offsets[rows], counts[rows]) + inside] = targets
        base += group.positions.numel()
        groups.append(group)
    cells = np.repeat(slots * context + starts, counts) + _ranges(counts)
    return AttentionPlan(
        groups=groups, order=torch.from_numpy(order).to(device), cells=torch.from_numpy(cells).to(device)
    )


def _ranges(counts: Ints) -> Ints:
    """0 .. n-1 for each n of counts, one after the other."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def _buckets(starts: Ints, counts: Ints) -> list[Ints]:
    """Rows by size class of their new tokens (1, 4, 16, ...), split where one call would grow too large."""
    size = np.ceil(np.log2(counts) / 2).astype(np.int64)
    length = np.maximum(np.ceil(np.log2(starts + counts)).astype(np.int64), 8)
    classes = np.where(counts > 4, size * 64 + length, size * 64)
    found = []
    for value in np.unique(classes):
        rows = np.flatnonzero(classes == value)
        scores = int(counts[rows].max()) * int((starts[rows] + counts[rows]).max())
        at_once = max(1, MAX_SCORES // scores)
        found += [rows[index : index + at_once] for index in range(0, len(rows), at_once)]
    return found


def _make_group(
    slots: Ints, starts: Ints, counts: Ints, offsets: Ints, context: int, device: torch.device
) -> tuple[AttentionGroup, Ints]:
    """The group and, per sequence, its row in it. A dense range of slots is read in place, without a copy."""
    queries = int(counts.max())
    longest = int((starts + counts).max())
    low, high = int(slots.min()), int(slots.max()) + 1
    in_place = high - low <= 2 * len(slots) and queries <= 4
    row = slots - low if in_place else np.arange(len(slots))
    rows = high - low if in_place else len(slots)
    step = np.minimum(np.arange(queries), counts[:, None] - 1)  # padding repeats the last token
    tokens = np.zeros((rows, queries), dtype=np.int64)
    positions = np.zeros((rows, queries), dtype=np.int64)
    tokens[row] = offsets[:, None] + step
    positions[row] = starts[:, None] + step
    group = AttentionGroup(
        slots=slice(low, high) if in_place else torch.from_numpy(slots).to(device),
        tokens=torch.from_numpy(tokens.reshape(-1)).to(device),
        positions=torch.from_numpy(positions).to(device),
        keys=min(context, -(-longest // KEY_MULTIPLE) * KEY_MULTIPLE),
    )
    return group, row


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    slot_plan: AttentionPlan,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """query [1, H, T, D]; key and value [S, context, K, D] as the cache holds them. Output [1, T, H, D]."""
    if softcap is not None or s_aux is not None:
        raise UserError("generator.backend transformers: this model's attention needs backend vllm")
    packed = query[0].transpose(0, 1)
    heads, width = packed.shape[1:]
    key_heads = key.shape[2]
    repeat = heads // key_heads
    outputs = []
    for group in slot_plan.groups:
        rows, queries = group.positions.shape
        grouped = packed.index_select(0, group.tokens).view(rows, queries, key_heads, repeat, width)
        output = scaled_dot_product_attention(
            grouped.permute(0, 2, 3, 1, 4).reshape(rows, key_heads, repeat * queries, width),
            key[group.slots, : group.keys].transpose(1, 2),
            value[group.slots, : group.keys].transpose(1, 2),
            attn_mask=group.mask(window=sliding_window, repeat=repeat, dtype=query.dtype),
            scale=scaling,
        )
        output = output.view(rows, key_heads, repeat, queries, width).permute(0, 3, 1, 2, 4)
        outputs.append(output.reshape(rows * queries, heads, width))
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return joined.index_select(0, slot_plan.order).unsqueeze(0), None


def register() -> None:
    """Make IMPLEMENTATION known to transformers. It has no mask function there: the plan makes its own."""
    from transformers import AttentionInterface

    AttentionInterface.register(IMPLEMENTATION, slot_attention)
