"""Attention over slots equals attention of each sequence on its own, for any mixture of lengths."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rla.errors import UserError
from rla.llm.slots import AttentionPlan, make_plan, slot_attention

SLOTS, CONTEXT, HEADS, KEY_HEADS, WIDTH = 6, 64, 4, 2, 8
MODULE = torch.nn.Module()

rows = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), st.integers(0, 40), st.integers(1, 24)),
    min_size=1,
    max_size=SLOTS,
    unique_by=lambda row: row[0],
)


def plan_of(chosen: list[tuple[int, int, int]]) -> AttentionPlan:
    slots, starts, counts = (np.array(column) for column in zip(*chosen, strict=True))
    return make_plan(slots=slots, starts=starts, counts=counts, context=CONTEXT, device=torch.device("cpu"))


def alone(query: Tensor, key: Tensor, value: Tensor, start: int, window: int | None) -> Tensor:
    """query [H, n, D] at positions from `start`; key and value [context, K, D]. One head, one token at a
    time."""
    output = torch.empty(query.shape[1], HEADS, WIDTH)
    for head in range(HEADS):
        for index in range(query.shape[1]):
            last = start + index + 1
            first = 0 if window is None else max(0, last - window)
            keys = key[first:last, head * KEY_HEADS // HEADS]
            weights = torch.softmax(keys @ query[head, index] / math.sqrt(WIDTH), 0)
            output[index, head] = weights @ value[first:last, head * KEY_HEADS // HEADS]
    return output


@settings(max_examples=25)
@given(chosen=rows, window=st.sampled_from([None, 5]))
def test_packed_equals_alone(chosen: list[tuple[int, int, int]], window: int | None) -> None:
    torch.manual_seed(len(chosen))
    key, value = torch.randn(2, SLOTS, CONTEXT, KEY_HEADS, WIDTH)
    query = torch.randn(1, HEADS, sum(count for _, _, count in chosen), WIDTH)
    output, _ = slot_attention(
        MODULE, query, key, value, None, slot_plan=plan_of(chosen), scaling=WIDTH**-0.5, sliding_window=window
    )
    offset = 0
    for slot, start, count in chosen:
        expected = alone(query[0, :, offset : offset + count], key[slot], value[slot], start, window)
        torch.testing.assert_close(output[0, offset : offset + count], expected, atol=1e-5, rtol=1e-5)
        offset += count


def test_cells_are_where_the_new_tokens_belong() -> None:
    plan = plan_of([(2, 10, 3), (0, 5, 1)])
    assert plan.cells.tolist() == [2 * CONTEXT + 10, 2 * CONTEXT + 11, 2 * CONTEXT + 12, 5]


def test_single_tokens_of_neighbouring_slots_are_read_in_place() -> None:
    (group,) = plan_of([(1, 10, 1), (3, 17, 1), (4, 2, 1)]).groups
    assert group.slots == slice(1, 5)
    assert group.keys == 32  # 18 rounded up to a multiple of 16


def test_an_attention_it_cannot_do_is_refused() -> None:
    key = torch.zeros(SLOTS, CONTEXT, KEY_HEADS, WIDTH)
    with pytest.raises(UserError, match="vllm"):
        slot_attention(
            MODULE,
            torch.zeros(1, HEADS, 1, WIDTH),
            key,
            key,
            None,
            slot_plan=plan_of([(0, 0, 1)]),
            softcap=50.0,
        )
