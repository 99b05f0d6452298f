"""Segments of different lengths in one row, each seeing only itself: a forward pass without padding.

Linear layers run on [1, T]; attention regroups the T tokens. On CUDA in half precision that is one call of
FlashAttention for sequences of any length, as torch brings it; elsewhere, and for segments with branches, tokens are
laid out as rows of alike length and SDPA runs on each block of rows. Padding of a row comes after its tokens, where
causal attention never looks, and no gradient comes back from it.

Registered with transformers as one more attention implementation: any model takes part whose layers all attend
through that interface, in full or in a window. For others (`packs` is false) segments are padded rows. Shapes: T
tokens of the pass, R rows of L cells in a block, S cells of all blocks, H heads, D width.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from rla.errors import UserError
from rla.models.sight import set_text_attention
from rla.training.branches import Branch, Forks, branch_attention, forks

IMPLEMENTATION = "rla_packed"
ALIKE = 0.75  # rows of a block are at least this share of its longest
LAYERS = {"full_attention", "sliding_attention"}
VARLEN_WIDTHS = frozenset(range(8, 257, 8))  # of FlashAttention's heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """R segments as rows of L cells; `forks` where they have branches."""

    rows: int
    length: int
    forks: Forks | None
    masks: dict[int | None, Tensor] = field(default_factory=dict)  # by window, made once for all layers

    def mask(self, window: int | None, *, like: Tensor) -> Tensor | None:
        """Additive, for the last queries of each row; None where causal attention is all."""
        if window is not None and window >= self.length:
            window = None
        if self.forks is None and window is None:
            return None
        if window not in self.masks:
            self.masks[window] = self._mask(window, like)
        return self.masks[window]

    def _mask(self, window: int | None, like: Tensor) -> Tensor:
        if self.forks is None:
            place = torch.arange(self.length, device=like.device)[None]
            seen = (place[:, :, None] >= place[:, None, :])[:, None]
        else:
            place, seen = self.forks.place, self.forks.visible
        if window is not None:
            seen = seen & (place[:, :, None] - place[:, None, :] < window)[:, None]
        elif self.forks is not None:
            seen = seen[:, :, self.forks.trunk :]
        return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill_(~seen, float("-inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Where the tokens of a pass stand in their blocks.

    `cells` (S) holds the token of each cell, `order` (T) the cell of each token, `bounds` (segments + 1) where segments
    begin and end; `longest` is their greatest length, `places` (1, T) are positions within the segments.
    """

    blocks: list[Block]
    cells: Tensor
    order: Tensor
    bounds: Tensor
    longest: int
    places: Tensor

    @property
    def forked(self) -> bool:
        return any(block.forks is not None for block in self.blocks)


def pack(
    lengths: Sequence[int], branches: Sequence[Sequence[Branch]], *, device: torch.device | str = "cpu"
) -> Packing:
    """Segments that follow each other in one row. `branches` by segment, in the segment's own positions."""
    sizes = np.asarray(lengths)
    starts = np.cumsum(sizes) - sizes
    order = np.empty(int(sizes.sum()), dtype=np.int64)
    places = np.empty_like(order)
    blocks: list[Block] = []
    cells: list[np.ndarray[Any, Any]] = []
    base = 0
    for rows in _alike(lengths, branches):
        longest = int(sizes[rows].max())
        within = np.arange(longest)
        cells.append((starts[rows][:, None] + np.minimum(within, sizes[rows][:, None] - 1)).reshape(-1))
        found = forks([branches[row] for row in rows], longest, device=device)
        for number, row in enumerate(rows):
            span = slice(starts[row], starts[row] + sizes[row])
            order[span] = base + number * longest + within[: sizes[row]]
            places[span] = within[: sizes[row]] if found is None else found.place[number, : sizes[row]].cpu().numpy()
        blocks.append(Block(rows=len(rows), length=longest, forks=found))
        base += len(rows) * longest
    return Packing(
        blocks=blocks,
        cells=torch.from_numpy(np.concatenate(cells)).to(device),
        order=torch.from_numpy(order).to(device),
        bounds=torch.tensor([*starts.tolist(), int(sizes.sum())], dtype=torch.int32, device=device),
        longest=int(sizes.max()),
        places=torch.from_numpy(places)[None].to(device),
    )


def _alike(lengths: Sequence[int], branches: Sequence[Sequence[Branch]]) -> list[list[int]]:
    """Segments by length, longest first, cut where they become much shorter; those with branches among themselves."""
    found: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: (not branches[index], -lengths[index], index)):
        first = found[-1][0] if found else index
        alike = lengths[index] >= ALIKE * lengths[first] and bool(branches[index]) == bool(branches[first])
        if found and alike:
            found[-1].append(index)
        else:
            found.append([index])
    return found


def prefer(model: PreTrainedModel) -> bool:
    """Switch a model that can to packed attention; whether it can."""
    text = model.config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    if model.config._attn_implementation == IMPLEMENTATION:
        return True
    able = (
        model.config._attn_implementation == "sdpa"
        and getattr(model, "_supports_attention_backend", False)
        and kinds <= LAYERS
        and not getattr(model, "_is_stateful", False)
        and not hasattr(text, "layers_block_type")
        and not getattr(text, "attn_logit_softcapping", None)
    )
    if able:
        AttentionInterface.register(IMPLEMENTATION, packed_attention)
        set_text_attention(model, IMPLEMENTATION)
    return bool(able)


class _Spread(torch.autograd.Function):
    """[T, ...] -> [S, ...]: the token of each cell. Padding cells pass no gradient back."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, cells: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return tokens.index_select(0, cells)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        (order,) = ctx.saved_tensors
        return gradients[0].index_select(0, order), None, None


class _Collect(torch.autograd.Function):
    """[S, ...] -> [T, ...]: the cell of each token."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        ctx.cells = len(rows)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        spread = gradients[0].new_zeros(ctx.cells, *gradients[0].shape[1:])
        return spread.index_copy_(0, order, gradients[0]), None


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: Packing | None = None,
    sliding_window: int | None = None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """query [1, H, T, D], key and value with their own number of heads. Output [1, T, H, D]."""
    if packing is None:
        return branch_attention(module, query, key, value, attention_mask, scaling=scaling, **options)
    if attention_mask is not None:
        raise UserError(f"{type(module).__name__} makes attention masks of its own, which a packed row cannot follow")
    half = _half(value)
    widths = {query.shape[-1], key.shape[-1], value.shape[-1]}
    if half is not None and not packing.forked and widths <= VARLEN_WIDTHS and len(widths) == 1:
        return _flash(query, key, value, packing, window=sliding_window, scaling=scaling, dtype=half), None
    laid_out = [_Spread.apply(one[0].transpose(0, 1), packing.cells, packing.order) for one in (query, key, value)]
    outputs, low = [], 0
    for block in packing.blocks:
        high = low + block.rows * block.length
        rows = [one[low:high].unflatten(0, (block.rows, block.length)).transpose(1, 2) for one in laid_out]
        mask = block.mask(sliding_window, like=rows[0])
        q, k, v = rows
        attended, _ = branch_attention(module, q, k, v, mask, scaling=scaling, **options)
        outputs.append(attended.flatten(0, 1))
        low = high
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return _Collect.apply(joined, packing.order).unsqueeze(0), None


def _half(value: Tensor) -> torch.dtype | None:
    """The precision in which FlashAttention would run, or None where it does not."""
    if value.device.type != "cuda" or importlib.util.find_spec("torch.nn.attention.varlen") is None:
        return None
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else value.dtype
    return dtype if dtype in (torch.bfloat16, torch.float16) else None


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packing: Packing,
    *,
    window: int | None,
    scaling: float | None,
    dtype: torch.dtype,
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn  # imports the compiler: more than a second

    q, k, v = (one[0].transpose(0, 1).to(dtype) for one in (query, key, value))
    attended = varlen_attn(
        q,
        k,
        v,
        packing.bounds,
        packing.bounds,
        packing.longest,
        packing.longest,
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(attended, Tensor)
    return attended.unsqueeze(0)
