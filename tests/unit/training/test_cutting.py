"""A row's branches in several sequences: which tokens each has, and that the gradient stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rla.training.model import TokenScorer
from rla.training.sequences import TrainingSequence, split_branches, without_long_replies
from tests.unit.training.test_packing import family, forked, gradients

# A prompt of three tokens and replies of 2, 1 and 3.
TREE = TrainingSequence(
    token_ids=[1, 2, 3, 10, 11, 20, 30, 31, 32],
    positions=[3, 4, 5, 7, 8],
    logp=[-0.1, -0.2, -0.3, -0.4, -0.5],
    allowed=[[], [11, 9], [], [], []],
    advantages=[1.0, 1.0, -1.0, 2.0, 2.0],
    branches=((3, 5), (5, 6), (6, 9)),
    replies=[0, 0, 1, 4, 4],
    owner="t",
)


def test_branches_are_cut_by_the_budget() -> None:
    """Six tokens hold the prompt with the first two replies (3 + 2 + 1), and then with the third (3 + 3)."""
    first, second = split_branches(TREE, budget=6)
    assert first == TrainingSequence(
        token_ids=[1, 2, 3, 10, 11, 20],
        positions=[3, 4, 5],
        logp=[-0.1, -0.2, -0.3],
        allowed=[[], [11, 9], []],
        advantages=[1.0, 1.0, -1.0],
        branches=((3, 5), (5, 6)),
        replies=[0, 0, 1],
        owner="t",
    )
    assert second == TrainingSequence(
        token_ids=[1, 2, 3, 30, 31, 32],
        positions=[4, 5],
        logp=[-0.4, -0.5],
        allowed=[[], []],
        advantages=[2.0, 2.0],
        replies=[4, 4],
        owner="t",
    )
    assert (first.predictors(), second.predictors()) == ([2, 3, 2], [3, 4])


def test_what_fits_is_not_touched_and_what_has_no_branches_is_not_cut() -> None:
    assert split_branches(TREE, budget=9) == [TREE]
    plain = replace(TREE, branches=())
    assert split_branches(plain, budget=2) == [plain]


def test_a_branch_that_is_too_large_alone_stands_alone() -> None:
    assert [one.token_ids for one in split_branches(TREE, budget=2)] == [
        [1, 2, 3, 10, 11],
        [1, 2, 3, 20],
        [1, 2, 3, 30, 31, 32],
    ]


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    prompt=st.integers(1, 9),
    spare=st.integers(0, 20),
    packed=st.booleans(),
)
def test_every_reply_is_in_one_piece_and_no_piece_exceeds_the_budget(
    sizes: list[int], prompt: int, spare: int, packed: bool
) -> None:
    budget = prompt + max(sizes) + spare
    whole = forked(prompt, *sizes)
    pieces = split_branches(whole, budget=budget, packed=packed)
    for one in pieces:
        rows = [len(text.token_ids) for text in one.texts()]
        assert (len(one.token_ids) if packed else len(rows) * max(rows)) <= budget
    assert [value for one in pieces for value in one.advantages] == whole.advantages
    assert [one.token_ids[position] for one in pieces for position in one.positions] == whole.token_ids[prompt:]


@pytest.mark.parametrize("packed", [True, False])
def test_the_pieces_give_the_gradient_of_the_row(packed: bool) -> None:
    whole = forked(11, 3, 5, 2, 7, 4)
    pieces = split_branches(whole, budget=20)
    assert [len(one.token_ids) for one in pieces] == [19, 20, 15]
    scorer = TokenScorer(family("qwen3").eval(), temperature=0.8)
    # A row for each in one pass, and a pass for each: padded rows take passes of their own.
    logp, expected = gradients(scorer, [whole], packed=scorer.packs)
    found, cut = gradients(scorer, pieces, packed=packed)
    torch.testing.assert_close(found, logp, atol=1e-5, rtol=0)
    for one, two in zip(cut, expected, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)


# Two steps of an episode: tokens 2 and 3, and tokens 6 and 7; the step at 7 is cut off with its whole reply.
EPISODE = TrainingSequence(
    token_ids=[1, 2, 3, 4, 5, 6, 7, 8],
    positions=[2, 3, 6, 7],
    logp=[-0.1, -0.2, -0.3, -0.4],
    allowed=[[], [], [], []],
    advantages=[1.0, 1.0, -1.0, -1.0],
    replies=[0, 0, 1, 1],
    owner="t",
)


@pytest.mark.parametrize("limit", [4, 7])
def test_an_episode_is_cut_at_the_boundary_of_a_step(limit: int) -> None:
    """Seven tokens would hold a half of the second step: it is left out whole."""
    assert without_long_replies(EPISODE, max_tokens=limit) == TrainingSequence(
        token_ids=[1, 2, 3, 4],
        positions=[2, 3],
        logp=[-0.1, -0.2],
        allowed=[[], []],
        advantages=[1.0, 1.0],
        replies=[0, 0],
        owner="t",
    )


def test_what_is_within_the_limit_stays_and_what_begins_beyond_it_is_nothing() -> None:
    assert without_long_replies(EPISODE, max_tokens=8) is EPISODE
    assert without_long_replies(EPISODE, max_tokens=3) is None


def test_of_judgements_the_long_ones_are_left_out() -> None:
    """The prompt has three tokens and the third reply three: a limit of five keeps the two others."""
    shorter = without_long_replies(TREE, max_tokens=5)
    assert shorter is not None
    assert (shorter.token_ids, shorter.branches, shorter.replies) == (
        [1, 2, 3, 10, 11, 20],
        ((3, 5), (5, 6)),
        [0, 0, 1],
    )
    assert without_long_replies(TREE, max_tokens=3) is None
