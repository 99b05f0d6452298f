"""Every sequence trains once an epoch, and no forward pass is larger than its budget."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from rla.training.model import collate, micro_batches
from rla.training.sequences import TrainingSequence, plan_updates


@given(count=st.integers(0, 50), updates=st.integers(1, 9), epochs=st.integers(1, 3))
def test_an_epoch_holds_every_sequence_once(count: int, updates: int, epochs: int) -> None:
    plan = plan_updates(count, updates=updates, epochs=epochs, seed=0)
    assert len(plan) == epochs * min(updates, count)
    assert sorted(index for part in plan for index in part) == sorted(list(range(count)) * epochs)
    sizes = {len(part) for part in plan}
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_order_depends_on_the_seed_and_on_the_epoch() -> None:
    first, second = plan_updates(20, updates=1, epochs=2, seed=0)
    assert first != second
    assert plan_updates(20, updates=1, epochs=2, seed=0) == [first, second]
    assert plan_updates(20, updates=1, epochs=2, seed=1) != [first, second]


def test_micro_batches_are_sorted_by_length_and_a_long_one_stands_alone() -> None:
    lengths = [10, 4, 100, 10, 5]
    assert micro_batches(lengths, range(5), tokens_per_batch=24) == [[2], [0, 3], [4, 1]]
    assert micro_batches(lengths, range(5), tokens_per_batch=24, rows=[1] * 5) == [[2], [0, 3], [4, 1]]
    assert micro_batches(lengths, range(5), tokens_per_batch=29) == [[2], [0, 3, 4, 1]]
    assert micro_batches(lengths, range(5), tokens_per_batch=29, rows=[1] * 5) == [[2], [0, 3], [4, 1]]


SIZES = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 5)), max_size=30)  # tokens, rows


@given(sizes=SIZES, budget=st.integers(1, 300), packed=st.booleans())
def test_micro_batches_keep_the_budget(sizes: list[tuple[int, int]], budget: int, packed: bool) -> None:
    lengths, rows = [length for length, _ in sizes], [count for _, count in sizes]
    batches = micro_batches(lengths, range(len(sizes)), tokens_per_batch=budget, rows=None if packed else rows)
    assert sorted(index for batch in batches for index in batch) == list(range(len(sizes)))
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        padded = sum(rows[index] for index in batch) * longest
        assert len(batch) == 1 or (sum(lengths[index] for index in batch) if packed else padded) <= budget


def test_padded_rows_hold_a_branch_each_behind_the_prompt() -> None:
    tree = TrainingSequence(
        token_ids=[5, 6, 7, 8],
        positions=[2, 3],
        logp=[-0.1, -0.2],
        allowed=[[], []],
        advantages=[1.0, 1.0],
        branches=((1, 3), (3, 4)),
        replies=[0, 1],
    )
    plain = TrainingSequence(token_ids=[5, 6, 7, 8, 9], positions=[4], logp=[-0.1], allowed=[[]], advantages=[1.0])
    batch = collate([tree, plain], device=torch.device("cpu"), packed=False)
    assert batch.input_ids.tolist() == [[5, 6, 0, 0], [5, 0, 0, 0], [5, 6, 7, 8]]
    assert (batch.rows.tolist(), batch.columns.tolist()) == ([0, 1, 2], [1, 0, 3])
    assert (batch.replies.tolist(), batch.segments.tolist(), batch.targets.tolist()) == (
        [0, 1, 2],
        [0, 1, 2],
        [7, 8, 9],
    )


def test_a_batch_points_one_before_each_predicted_token() -> None:
    sequences = [
        TrainingSequence(
            token_ids=[5, 6, 7],
            positions=[1, 2],
            logp=[-0.1, -0.2],
            allowed=[[6, 9], []],
            advantages=[1.0, 2.0],
        ),
        TrainingSequence(token_ids=[8, 9], positions=[1], logp=[-0.3], allowed=[[9, 3, 4]], advantages=[3.0]),
    ]
    for packed in (True, False):
        batch = collate(sequences, device=torch.device("cpu"), packed=packed)
        assert batch.input_ids.tolist() == ([[5, 6, 8]] if packed else [[5, 6], [8, 0]])
        assert batch.rows.tolist() == ([0, 0, 0] if packed else [0, 0, 1])
        assert batch.columns.tolist() == ([0, 1, 2] if packed else [0, 1, 0])
    assert batch.targets.tolist() == [6, 7, 9]
    assert batch.allowed is not None
    assert batch.restricted is not None
    assert batch.allowed.tolist() == [[6, 9, 6], [0, 0, 0], [9, 3, 4]]
    assert batch.restricted.tolist() == [True, False, True]
    assert batch.advantages.tolist() == [1.0, 2.0, 3.0]


def test_a_segment_is_a_sequence_or_one_of_its_branches() -> None:
    """An episode of two steps, and two judgements of one prompt, of which the first has two loss tokens."""
    common: dict[str, Any] = {"logp": [-0.1] * 3, "allowed": [[]] * 3, "advantages": [1.0] * 3}
    episode = TrainingSequence(token_ids=[1, 2, 3, 4, 5], positions=[1, 3, 4], replies=[0, 1, 1], **common)
    judged = TrainingSequence(
        token_ids=[1, 2, 3, 4, 5], positions=[2, 3, 4], replies=[0, 0, 1], branches=((2, 4), (4, 5)), **common
    )
    batch = collate([episode, judged], device=torch.device("cpu"), packed=True)
    assert batch.segments.tolist() == [0, 0, 0, 1, 1, 2]
    assert batch.replies.tolist() == [0, 1, 1, 2, 2, 3]
