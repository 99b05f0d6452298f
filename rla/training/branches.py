"""Rows that fork: branches that each continue a text and do not see each other.

A token of the trunk sees the trunk before it; a token of a branch sees the first `anchor` tokens of the trunk and
its own branch before it, and stands where it would stand right behind them.

SDPA with a mask computes every pair of tokens, and turns a mask of booleans into numbers again in every layer.
`branch_attention` spares both: the tokens before the first branch of any row attend causally without a mask, the
others in blocks, each with the tokens that one of it sees and its rows of an additive mask that is made once. With a
trunk of 1,000 tokens and 90 branches of 24 that is a fifth of the pairs, and half of the time of a training step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rla.errors import UserError
from rla.models.sight import set_text_attention

IMPLEMENTATION = "rla_branches"
BLOCK = 128  # queries
WORTHWHILE = 0.5  # share of the pairs

Branch = tuple[int, int, int]  # start, end (exclusive), anchor


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
        ours = model.config._attn_implementation == IMPLEMENTATION
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
        AttentionInterface.register(IMPLEMENTATION, branch_attention)
        set_text_attention(model, IMPLEMENTATION)


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
