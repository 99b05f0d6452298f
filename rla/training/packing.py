"""Attention that sees what a text is: segments behind each other in one row without padding, and rows that fork.

Segments (`pack`): each sees only itself. Linear layers run on [1, T]; attention regroups the T tokens. On CUDA in half
precision that is one call of FlashAttention for sequences of any length, as torch brings it; elsewhere, and for
segments with branches, tokens are laid out as rows of alike length and SDPA runs on each block of rows. Padding of a
row comes after its tokens, where causal attention never looks, and no gradient comes back from it.

Registered with transformers as one more attention implementation: any model takes part whose layers all attend
through that interface, in full or in a window. For others (`packs` is false) segments are padded rows. Shapes: T
tokens of the pass, R rows of L cells in a block, S cells of all blocks, H heads, D width.

Rows that fork (`forks`): branches each continue a text and do not see each other. A token of the trunk sees the trunk
before it; a token of a branch sees the first `anchor` tokens of the trunk and its own branch before it, and stands
where it would stand right behind them.

SDPA with a mask computes every pair of tokens, and turns a mask of booleans into numbers again in every layer.
`branch_attention` spares both: the tokens before the first branch of any row attend causally without a mask, the
others in blocks, each with the tokens that one of it sees and its rows of an additive mask that is made once. With a
trunk of 1,000 tokens and 90 branches of 24 that is a fifth of the pairs, and half of the time of a training step.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rla.errors import UserError
from rla.models.sight import set_text_attention

FORKED = "rla_branches"
BLOCK = 128  # queries
WORTHWHILE = 0.5  # share of the pairs

Branch = tuple[int, int, int]  # start, end (exclusive), anchor
IMPLEMENTATION = "rla_packed"
ALIKE = 0.75  # rows of a block are at least this share of its longest
LAYERS = {"full_attention", "sliding_attention"}
VARLEN_WIDTHS = frozenset(range(8, 257, 8))  # of FlashAttention's heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Forks:
    """`place` (B, L) of the tokens in their texts, `visible` (B, 1, L, L), true where a token is seen.

    No row has a branch among its first `trunk` tokens.
    """

    place: Tensor
    visible: Tensor
    trunk: int

    def mask(self, model: PreTrainedModel) -> Tensor:
        """The additive attention mask that the model's implementation takes.

        Raises UserError for rows that are longer than a window of the model's: a mask of who sees whom knows none.
        """
        ours = model.config._attn_implementation == FORKED
        window, length = _window(model), self.visible.shape[-1]
        if window is not None and length > window:
            raise UserError(
                f"a row of {length} tokens with branches, but {model.config.model_type} has layers that see {window}; "
                "take a reward model with full attention, or shorter prompts"
            )
        seen = self.visible[:, :, self.trunk :] if ours else self.visible
        return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, float("-inf")).to(model.dtype)


def forks(branches: Sequence[Sequence[Branch]], length: int, *, device: torch.device | str = "cpu") -> Forks | None:
    """Places and visibility of rows of `length` tokens; None where no row has a branch."""
    starts = [start for marks in branches for start, _, _ in marks]
    if not starts:
        return None
    place = torch.arange(length).repeat(len(branches), 1)
    number = torch.zeros(len(branches), length, dtype=torch.long)
    reach = torch.full((len(branches), length), length)
    for row, marks in enumerate(branches):
        for index, (start, end, anchor) in enumerate(marks, start=1):
            number[row, start:end] = index
            reach[row, start:end] = anchor
            place[row, start:end] += anchor - start
    place, number, reach = place.to(device), number.to(device), reach.to(device)
    columns = torch.arange(length, device=device)
    trunk = (number[:, None, :] == 0) & (columns < reach[:, :, None])
    causal = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    visible = (trunk | (number[:, :, None] == number[:, None, :])) & causal
    return Forks(place=place, visible=visible[:, None], trunk=min(starts))


def preferring_branches(model: PreTrainedModel) -> None:
    """Switch a model with plain SDPA in every layer to `branch_attention`; any other keeps what it has."""
    if model.config._attn_implementation == "sdpa" and _window(model) is None:
        AttentionInterface.register(FORKED, branch_attention)
        set_text_attention(model, FORKED)


def _window(model: PreTrainedModel) -> int | None:
    """The number of tokens that the model's windowed layers see; None where there are none."""
    text = model.config.get_text_config()
    window: int | None = getattr(text, "sliding_window", None)
    kinds = set(getattr(text, "layer_types", None) or [])
    return None if kinds == {"full_attention"} else window


def branch_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """query, key, value [B, heads, L, D]; an additive mask [B, 1, Q, L] is for the last Q queries. [B, L, heads, D]."""
    if attention_mask is None:
        whole: Tensor = sdpa_attention_forward(module, query, key, value, None, **options)[0]
        return whole, None
    trunk = query.shape[2] - attention_mask.shape[2]
    attended = []
    if trunk:
        first = query[:, :, :trunk], key[:, :, :trunk], value[:, :, :trunk]
        attended.append(sdpa_attention_forward(module, *first, None, **options)[0])
    queries, keys, values, masks = (query[:, :, trunk:],), (key,), (value,), [attention_mask]
    cut = blocks(attention_mask)
    if cut is not None:
        masks = cut.masks
        sizes = [mask.shape[-1] for mask in masks]
        queries = queries[0].split(BLOCK, dim=2)
        keys, values = (seen.index_select(2, cut.columns).split(sizes, dim=2) for seen in (key, value))
    for q, k, v, mask in zip(queries, keys, values, masks, strict=True):
        attended.append(sdpa_attention_forward(module, q, k, v, mask.to(query.dtype), **options)[0])
    return torch.cat(attended, dim=1), None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Of each `BLOCK` queries: `masks`, the columns that one of them sees. `columns`: the numbers of those, block by
    block.
    """

    masks: list[Tensor]
    columns: Tensor


def blocks(mask: Tensor) -> Blocks | None:
    """What is left of a mask [B, 1, Q, L]; None where too little is left out to pay for copies of keys and values.

    Every layer asks with the same mask: it is worked out once.
    """
    if mask not in _CUT:
        rows = mask.split(BLOCK, dim=2)
        seen = [(block > float("-inf")).any(dim=2).any(dim=0)[0].nonzero()[:, 0] for block in rows]
        pays = sum(map(len, seen)) < WORTHWHILE * len(seen) * mask.shape[3]
        masks = [block.index_select(3, columns) for block, columns in zip(rows, seen, strict=True)] if pays else []
        _CUT[mask] = Blocks(masks=masks, columns=torch.cat(seen)) if pays else None
    found: Blocks | None = _CUT[mask]
    return found


_CUT = WeakTensorKeyDictionary()


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
