"""KV cache slots: which sequence each slot holds, which sequence may use it next, and attention over slots.

A slot is live (a completion is being sampled), held (a session waits for its next turn) or free. A free slot may still
hold a prefix of another prompt. Correctness never depends on that: a slot holds the keys and values of its first
`valid` ids, and a prompt uses the part that it shares with them.

A forward pass packs the new tokens of many sequences into a single row. Linear layers see [1, tokens] without padding;
in attention the queries are grouped by the number of new tokens of their sequence (1, up to 4, up to 16, ...) and
attend to the keys of their own slot. Grouped-query heads become further queries of their key head, so keys and values
are never repeated. It is registered with transformers as an attention implementation, for any model that uses its
attention interface.

Shapes: T new tokens, R sequences of a group, Q queries of each, L keys, S slots, H heads, K key heads, D
width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import Cache

from rla.errors import UserError

Ints = npt.NDArray[np.int64]
IMPLEMENTATION = "rla_slots"
KEY_MULTIPLE = 16  # lengths are rounded up: masks stay aligned for the CUDA kernels
MAX_SCORES = 1 << 27  # scores (R * Q * L) of one attention call
MIN_COPY = 16  # tokens; a shorter shared prefix is computed again rather than copied
ALIGNED = 64  # bytes, as torch aligns what it allocates
MIN_WAIT = 32  # tokens; a prompt waits a pass for a prefix that another sequence is about to compute


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttentionGroup:
    """R sequences of Q (padded) queries each, for one attention call."""

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
    """The slots and positions of the packed tokens of a forward pass."""

    groups: list[_AttentionGroup]
    order: Tensor  # [T] index of each packed token in the concatenated outputs of the groups
    cells: Tensor  # [T] slot * context + position of its key and value


def make_plan(*, slots: Ints, starts: Ints, counts: Ints, context: int, device: torch.device) -> AttentionPlan:
    """Row i brings `counts[i]` new tokens for slot `slots[i]`, at positions from `starts[i]`."""
    offsets = np.cumsum(counts) - counts
    order = np.empty(int(counts.sum()), dtype=np.int64)
    groups: list[_AttentionGroup] = []
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
    """Rows by size class of their new tokens (1, 4, 16, ...), split so that no call grows too large."""
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
) -> tuple[_AttentionGroup, Ints]:
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
    group = _AttentionGroup(
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


class SlotTable:
    """The bookkeeping of `slots` slots of `context` tokens (host side, no tensors)."""

    def __init__(self, *, slots: int, context: int) -> None:
        self.ids = np.zeros((slots, context), dtype=np.int32)
        self.valid: Ints = np.zeros(slots, dtype=np.int64)  # leading ids with keys and values in the slot
        self.length: Ints = np.zeros(slots, dtype=np.int64)  # known ids, including those not computed yet
        self._sessions: dict[str, int] = {}
        self._holder: list[str | None] = [None] * slots
        self._live = np.zeros(slots, dtype=np.bool_)
        self._used = np.zeros(slots, dtype=np.float64)  # when it was last live

    def slot_of(self, session: str | None) -> int | None:
        return None if session is None else self._sessions.get(session)

    def has_room(self, *, idle_before: float) -> bool:
        """Whether `claim` would find a slot for a sequence without one."""
        return any(
            not live and (holder is None or used < idle_before)
            for live, holder, used in zip(self._live.tolist(), self._holder, self._used.tolist(), strict=True)
        )

    def worth_waiting(self, prompt: Ints) -> bool:
        """Whether a live slot is about to compute much more of this prompt than any slot holds now."""
        live = np.flatnonzero(self._live)
        if not len(live):
            return False
        _, coming = self._best(live, prompt, known=self.length)
        if coming < MIN_WAIT:
            return False
        _, present = self._best(np.arange(len(self.valid)), prompt, known=self.valid)
        return coming >= present + MIN_WAIT

    def claim(self, session: str | None, prompt: Ints, *, idle_before: float) -> tuple[int, int, int] | None:
        """Make a slot live for `prompt`: (slot, source slot, shared ids), or None while all are taken.

        In order of preference: the session's own slot, a free one, the one of the longest idle session if its last use
        was before `idle_before`. If source and slot differ, the caller copies the keys and values of the shared ids.
        """
        own = self.slot_of(session)
        if own is not None and self._live[own]:  # a second request of the session at the same time
            own = session = None
        slot = self._choose(prompt, idle_before) if own is None else own
        if slot is None:
            return None
        if own is None:
            if (holder := self._holder[slot]) is not None:
                self.release(holder)
            if session is not None:
                self._sessions[session] = slot
                self._holder[slot] = session
        source, shared = self._source(slot, prompt)
        self.ids[slot, : len(prompt)] = prompt
        self.length[slot] = len(prompt)
        self.valid[slot] = shared
        self._live[slot] = True
        return slot, source, shared

    def append(self, slot: int, tokens: Sequence[int]) -> None:
        """Add sampled or forced ids, whose keys and values are not computed yet."""
        start = int(self.length[slot])
        self.ids[slot, start : start + len(tokens)] = tokens
        self.length[slot] = start + len(tokens)

    def finish(self, slot: int, *, now: float) -> None:
        """The completion is done: the slot is held for its session, or free."""
        self._live[slot] = False
        self._used[slot] = now

    def release(self, session: str) -> None:
        """Forget a session; its slot is free once it is no longer live."""
        slot = self._sessions.pop(session, None)
        if slot is not None:
            self._holder[slot] = None

    def _choose(self, prompt: Ints, idle_before: float) -> int | None:
        idle = np.flatnonzero(~self._live)
        free = [int(slot) for slot in idle if self._holder[slot] is None]
        if free:
            best, shared = self._best(np.asarray(free), prompt, known=self.valid)
            return best if shared >= MIN_COPY else min(free, key=lambda slot: (self._used[slot], slot))
        if not len(idle):
            return None
        oldest = int(idle[np.argmin(self._used[idle])])
        return oldest if self._used[oldest] < idle_before else None

    def _source(self, slot: int, prompt: Ints) -> tuple[int, int]:
        _, own = self._best(np.asarray([slot]), prompt, known=self.valid)
        if own >= len(prompt) - MIN_COPY:
            return slot, own
        best, shared = self._best(np.arange(len(self.valid)), prompt, known=self.valid)
        return (best, shared) if shared >= own + MIN_COPY else (slot, own)

    def _best(self, slots: Ints, prompt: Ints, *, known: Ints) -> tuple[int, int]:
        """The slot with the longest prefix of the prompt among its `known` ids. The last id never counts."""
        differs = self.ids[slots, : len(prompt)] != prompt
        same = np.where(differs.any(axis=1), differs.argmax(axis=1), len(prompt))
        shared = np.minimum(np.minimum(same, known[slots]), len(prompt) - 1)
        index = int(shared.argmax())
        return int(slots[index]), int(shared[index])


def zeros(shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`torch.zeros` that on a CPU takes each page of memory when it is first written, not all at once."""
    if device.type != "cpu":
        return torch.zeros(tuple(shape), dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNED, dtype=np.uint8)  # the system zeroes pages when they are first written
    start = -memory.ctypes.data % ALIGNED
    return torch.from_numpy(memory[start : start + size]).view(dtype).view(tuple(shape))


class SlotCache(Cache):
    """Keys and values, each [layers, slots, context, key heads, width], written through an AttentionPlan."""

    def __init__(self, *, config: Any, slots: int, context: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(layers=[])
        heads = config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        key_heads = getattr(config, "num_key_value_heads", None) or heads
        shape = (2, config.num_hidden_layers, slots, context, key_heads, width)
        self.store = zeros(shape, dtype=dtype, device=device)
        self.plan: AttentionPlan  # of the current pass

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write [1, K, T, D] to the plan's cells; return the layer's whole store for the attention."""
        key, value = self.store[0, layer_idx], self.store[1, layer_idx]
        key.flatten(0, 1).index_copy_(0, self.plan.cells, key_states[0].transpose(0, 1))
        value.flatten(0, 1).index_copy_(0, self.plan.cells, value_states[0].transpose(0, 1))
        return key, value

    def copy(self, *, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of one slot to another."""
        self.store[:, :, target, :length] = self.store[:, :, source, :length]
