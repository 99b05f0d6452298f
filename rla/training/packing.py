"""Attention over packed rows and over rows with branches, as two attention implementations of transformers.

Packed rows (`pack`, `enable_packing`): sequences behind each other in one row without padding, each of which sees only
itself. Linear layers run on [1, T]; attention regroups the T tokens. On CUDA in half precision that is one call of
FlashAttention for sequences of any length; elsewhere, and for sequences with branches, tokens are laid out as rows of
similar length and SDPA runs on each block of rows. The padding of a row follows its tokens, so causal attention never
sees it. Models whose layers all attend through transformers' interface, in full or in a window, can pack. Shapes: T
tokens of the pass, R rows of L cells in a block, S cells of all blocks, H heads, D width.

Branches (`forks`, `enable_branches`) each continue a text, the trunk, and do not see each other. A token of a branch
sees the first `anchor` tokens of the trunk and its own branch before it, and has the position right behind them. SDPA
with a mask computes every pair of tokens. `_branch_attention` runs tokens before the first branch of any row without a
mask and the others in blocks, each with the columns that it sees. With a trunk of 1,000 tokens and 90 branches of 24
that is a fifth of the pairs, and half of the time of a training step.
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
from rla.pictures.encoder import set_text_attention
from rla.training.sequences import grouped

FORKED, PACKED = "rla_branches", "rla_packed"  # names of the implementations
BLOCK = 128  # queries
WORTHWHILE = 0.5  # share of the pairs that remain, below which copies of keys and values pay
SIMILAR = 0.75  # rows of a block are at least this share of its longest
LAYERS = {"full_attention", "sliding_attention"}
VARLEN_WIDTHS = frozenset(range(8, 257, 8))  # of FlashAttention's heads

Branch = tuple[int, int, int]  # start, end (exclusive), anchor


@dataclass(frozen=True, slots=True, kw_only=True)
class Forks:
    """`place` (B, L) has the positions of the tokens in their texts, `visible` (B, 1, L, L) is true if a token is seen.

    No row has a branch among its first `trunk` tokens.
    """

    place: Tensor
    visible: Tensor
    trunk: int

    def mask(self, model: PreTrainedModel) -> Tensor:
        """The additive attention mask that the model's implementation takes.

        Raises UserError for rows that are longer than the model's attention window, which such a mask cannot express.
        """
        ours = model.config._attn_implementation == FORKED
        window, length = _window(model), self.visible.shape[-1]
        if window is not None and length > window:
            raise UserError(
                f"a row of {length} tokens with branches, but {model.config.model_type} has layers that see {window}; "
                "take a reward model with full attention, or shorter prompts"
            )
        return _additive(self.visible[:, :, self.trunk :] if ours else self.visible, model.dtype)


def _additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))


def forks(branches: Sequence[Sequence[Branch]], length: int, *, device: torch.device | str = "cpu") -> Forks | None:
    """Positions and visibility of rows of `length` tokens; None if no row has a branch."""
    starts = [start for row in branches for start, _, _ in row]
    if not starts:
        return None
    place = torch.arange(length).repeat(len(branches), 1)
    number = torch.zeros(len(branches), length, dtype=torch.long)
    reach = torch.full((len(branches), length), length)
    for row, own in enumerate(branches):
        for index, (start, end, anchor) in enumerate(own, start=1):
            number[row, start:end] = index
            reach[row, start:end] = anchor
            place[row, start:end] += anchor - start
    place, number, reach = place.to(device), number.to(device), reach.to(device)
    trunk = (number[:, None, :] == 0) & (torch.arange(length, device=device) < reach[:, :, None])
    causal = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    visible = (trunk | (number[:, :, None] == number[:, None, :])) & causal
    return Forks(place=place, visible=visible[:, None], trunk=min(starts))


def enable_branches(model: PreTrainedModel) -> None:
    """Switch a model with plain SDPA in every layer to `_branch_attention`; any other keeps its own attention."""
    if model.config._attn_implementation == "sdpa" and _window(model) is None:
        AttentionInterface.register(FORKED, _branch_attention)
        set_text_attention(model, FORKED)


def _window(model: PreTrainedModel) -> int | None:
    """The number of tokens that the model's windowed layers see; None if it has no such layers."""
    text = model.config.get_text_config()
    window: int | None = getattr(text, "sliding_window", None)
    return None if set(getattr(text, "layer_types", None) or []) == {"full_attention"} else window


def _branch_attention(
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
    cut = mask_blocks(attention_mask)
    if cut is not None:
        masks, columns = cut
        sizes = [mask.shape[-1] for mask in masks]
        queries = queries[0].split(BLOCK, dim=2)
        keys, values = (seen.index_select(2, columns).split(sizes, dim=2) for seen in (key, value))
    for q, k, v, mask in zip(queries, keys, values, masks, strict=True):
        attended.append(sdpa_attention_forward(module, q, k, v, mask.to(query.dtype), **options)[0])
    return torch.cat(attended, dim=1), None


def mask_blocks(mask: Tensor) -> tuple[list[Tensor], Tensor] | None:
    """Cut a mask [B, 1, Q, L] into blocks of `BLOCK` queries: the mask of each over the columns that it sees, and those
    columns, block by block. None if too little is left out to pay for copies of keys and values.
    """
    if mask not in _BLOCKS:
        rows = mask.split(BLOCK, dim=2)
        seen = [(block > float("-inf")).any(dim=2).any(dim=0)[0].nonzero()[:, 0] for block in rows]
        pays = sum(map(len, seen)) < WORTHWHILE * len(seen) * mask.shape[3]
        masks = [block.index_select(3, columns) for block, columns in zip(rows, seen, strict=True)] if pays else []
        _BLOCKS[mask] = (masks, torch.cat(seen)) if pays else None
    found: tuple[list[Tensor], Tensor] | None = _BLOCKS[mask]
    return found


_BLOCKS = WeakTensorKeyDictionary()  # every layer asks with the same mask


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """R sequences as rows of L cells; `forks` if they have branches."""

    rows: int
    length: int
    forks: Forks | None
    masks: dict[int | None, Tensor] = field(default_factory=dict)  # by window, made once for all layers

    def mask(self, window: int | None, *, like: Tensor) -> Tensor | None:
        """The additive mask of the last queries of each row; None if attention is simply causal."""
        if window is not None and window >= self.length:
            window = None
        if self.forks is None and window is None:
            return None
        if window not in self.masks:
            if self.forks is None:
                place = torch.arange(self.length, device=like.device)[None]
                seen = (place[:, :, None] >= place[:, None, :])[:, None]
            else:
                place, seen = self.forks.place, self.forks.visible
            if window is not None:
                seen = seen & (place[:, :, None] - place[:, None, :] < window)[:, None]
            elif self.forks is not None:
                seen = seen[:, :, self.forks.trunk :]
            self.masks[window] = _additive(seen, like.dtype)
        return self.masks[window]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How the tokens of a pass are laid out in blocks.

    `cells` (S) holds the token of each cell, `order` (T) the cell of each token, `bounds` (sequences + 1) the bounds of
    the sequences; `longest` is their greatest length, `places` (1, T) are positions within the sequences.
    """

    blocks: list[_Block]
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
    """Lay out sequences that follow each other in one row. `branches` are in the positions of their own sequence."""
    sizes = np.asarray(lengths)
    starts = np.cumsum(sizes) - sizes
    # Longest first, cut when they become much shorter; sequences with branches are kept apart.
    ordered = sorted(range(len(lengths)), key=lambda index: (not branches[index], -lengths[index], index))
    groups = grouped(
        ordered,
        lambda rows, index: (
            lengths[index] >= SIMILAR * lengths[rows[0]] and bool(branches[index]) == bool(branches[rows[0]])
        ),
    )
    order = np.empty(int(sizes.sum()), dtype=np.int64)
    places = np.empty_like(order)
    blocks: list[_Block] = []
    cells: list[np.ndarray[Any, Any]] = []
    base = 0
    for rows in groups:
        longest = int(sizes[rows].max())
        within = np.arange(longest)
        cells.append((starts[rows][:, None] + np.minimum(within, sizes[rows][:, None] - 1)).reshape(-1))
        found = forks([branches[row] for row in rows], longest, device=device)
        for number, row in enumerate(rows):
            span = slice(starts[row], starts[row] + sizes[row])
            order[span] = base + number * longest + within[: sizes[row]]
            places[span] = within[: sizes[row]] if found is None else found.place[number, : sizes[row]].cpu().numpy()
        blocks.append(_Block(rows=len(rows), length=longest, forks=found))
        base += len(rows) * longest
    return Packing(
        blocks=blocks,
        cells=torch.from_numpy(np.concatenate(cells)).to(device),
        order=torch.from_numpy(order).to(device),
        bounds=torch.tensor([*starts.tolist(), int(sizes.sum())], dtype=torch.int32, device=device),
        longest=int(sizes.max()),
        places=torch.from_numpy(places)[None].to(device),
    )


def enable_packing(model: PreTrainedModel) -> bool:
    """Switch a model to packed attention if it can pack; returns whether it can."""
    if model.config._attn_implementation == PACKED:
        return True
    text = model.config.get_text_config()
    able = (
        model.config._attn_implementation == "sdpa"
        and getattr(model, "_supports_attention_backend", False)
        and set(getattr(text, "layer_types", None) or ["full_attention"]) <= LAYERS
        and not getattr(model, "_is_stateful", False)
        and not hasattr(text, "layers_block_type")
        and not getattr(text, "attn_logit_softcapping", None)
    )
    if able:
        AttentionInterface.register(PACKED, _packed_attention)
        set_text_attention(model, PACKED)
    return bool(able)


def _packed_attention(
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
        return _branch_attention(module, query, key, value, attention_mask, scaling=scaling, **options)
    if attention_mask is not None:
        raise UserError(f"{type(module).__name__} makes attention masks of its own, which a packed row cannot follow")
    half = _half(value)
    widths = {query.shape[-1], key.shape[-1], value.shape[-1]}
    if half is not None and not packing.forked and widths <= VARLEN_WIDTHS and len(widths) == 1:
        from torch.nn.attention.varlen import varlen_attn  # imports the compiler: more than a second

        q, k, v = (one[0].transpose(0, 1).to(half) for one in (query, key, value))
        flashed = varlen_attn(
            q,
            k,
            v,
            packing.bounds,
            packing.bounds,
            packing.longest,
            packing.longest,
            scale=scaling,
            window_size=(-1 if sliding_window is None else sliding_window - 1, 0),
            enable_gqa=query.shape[1] != key.shape[1],
        )
        assert isinstance(flashed, Tensor)
        return flashed.unsqueeze(0), None
    cells = [one[0].transpose(0, 1).index_select(0, packing.cells) for one in (query, key, value)]
    outputs, low = [], 0
    for block in packing.blocks:
        high = low + block.rows * block.length
        q, k, v = (one[low:high].unflatten(0, (block.rows, block.length)).transpose(1, 2) for one in cells)
        mask = block.mask(sliding_window, like=q)
        attended, _ = _branch_attention(module, q, k, v, mask, scaling=scaling, **options)
        outputs.append(attended.flatten(0, 1))
        low = high
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return joined.index_select(0, packing.order).unsqueeze(0), None


def _half(value: Tensor) -> torch.dtype | None:
    """The half precision in which FlashAttention would run, or None if it cannot."""
    if value.device.type != "cuda" or importlib.util.find_spec("torch.nn.attention.varlen") is None:
        return None
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else value.dtype
    return dtype if dtype in (torch.bfloat16, torch.float16) else None
