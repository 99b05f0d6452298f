"""Inverse-CDF sampling: golden numbers by hand, and the distribution over many uniforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rla.llm.transformers_engine import sample, uniforms

# Probabilities 0.1, 0.2, 0.3, 0.4 at temperature 1; cumulated 0.1, 0.3, 0.6, 1.0.
LOGITS = torch.log(torch.tensor([[0.1, 0.2, 0.3, 0.4]]))


def draw(
    u: float, *, offered: list[int] | None = None, temperature: float = 1.0, top_p: float = 1.0, logits: Tensor = LOGITS
) -> tuple[int, float]:
    tokens, logprobs = sample(
        logits, offered=[offered or []], temperatures=[temperature], top_ps=[top_p], uniform=np.array([u])
    )
    return tokens[0], logprobs[0]


def nucleus(top_p: float, **changes: Any) -> dict[int, float]:
    """Probabilities of all tokens that 1,000 uniforms over [0, 1) draw."""
    drawn = dict(draw(step / 1000, top_p=top_p, **changes) for step in range(1000))
    return {token: pytest.approx(math.exp(logprob), abs=1e-6) for token, logprob in sorted(drawn.items())}


@pytest.mark.parametrize(("u", "token"), [(0.0, 0), (0.09, 0), (0.11, 1), (0.31, 2), (0.61, 3), (0.9999, 3)])
def test_token_is_the_first_whose_cdf_exceeds_u(u: float, token: int) -> None:
    chosen, logprob = draw(u)
    assert chosen == token
    assert logprob == pytest.approx(math.log([0.1, 0.2, 0.3, 0.4][token]), abs=1e-6)


def test_restriction_renormalises_over_the_offered_ids() -> None:
    # Ids 1 and 3 have 0.2 and 0.4: one third and two thirds.
    assert draw(0.32, offered=[1, 3]) == (1, pytest.approx(math.log(1 / 3), abs=1e-6))
    assert draw(0.34, offered=[1, 3]) == (3, pytest.approx(math.log(2 / 3), abs=1e-6))


def test_temperature_half_squares_the_probabilities() -> None:
    # Squares 1, 4, 9, 16 of 30.
    assert draw(0.03, temperature=0.5) == (0, pytest.approx(math.log(1 / 30), abs=1e-6))
    assert draw(0.99, temperature=0.5) == (3, pytest.approx(math.log(16 / 30), abs=1e-6))


def test_temperature_zero_is_greedy_with_log_probability_zero() -> None:
    assert draw(0.0, temperature=0.0) == (3, 0.0)
    assert draw(0.999, offered=[0, 2], temperature=0.0) == (2, 0.0)


def test_rows_of_different_kinds_do_not_disturb_each_other() -> None:
    uniform = np.array([0.05, 0.95, 0.5])
    tokens, logprobs = sample(
        LOGITS.repeat(3, 1), offered=[[], [0, 1, 2], [2]], temperatures=[1.0, 1.0, 0.7], uniform=uniform
    )
    assert tokens == [0, 2, 2]
    assert logprobs == pytest.approx([math.log(0.1), math.log(0.5), 0.0], abs=1e-6)


def test_an_id_of_probability_zero_is_never_drawn() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 0.0, float("-inf")]])
    tokens, _ = sample(logits, offered=[[]], temperatures=[1.0], uniform=np.array([1 - 2**-53]))
    assert tokens == [2]


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [
        (1e-9, {3: 1.0}),  # never nothing
        (0.39, {3: 1.0}),
        (0.4, {3: 1.0}),  # reached
        (0.41, {2: 3 / 7, 3: 4 / 7}),
        (0.7, {2: 3 / 7, 3: 4 / 7}),
        (0.71, {1: 2 / 9, 2: 3 / 9, 3: 4 / 9}),
        (0.9, {1: 2 / 9, 2: 3 / 9, 3: 4 / 9}),
        (0.91, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
        (1.0, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
    ],
)
def test_the_nucleus_is_the_smallest_set_whose_probability_reaches_top_p(top_p: float, kept: dict[int, float]) -> None:
    assert nucleus(top_p) == kept


def test_of_equally_likely_ids_the_first_are_in_the_nucleus() -> None:
    # Four of 0.25: two reach 0.5, three reach 0.51.
    even = torch.zeros(1, 4)
    assert nucleus(0.5, logits=even) == {0: 0.5, 1: 0.5}
    assert nucleus(0.51, logits=even) == {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}


def test_the_nucleus_is_taken_after_the_temperature() -> None:
    # Squares 1, 4, 9, 16 of 30: 16 / 30 = 0.533 and 25 / 30 = 0.833, where 0.4 alone would not reach 0.5.
    assert nucleus(0.5, temperature=0.5) == {3: 1.0}
    assert nucleus(0.8, temperature=0.5) == {2: 9 / 25, 3: 16 / 25}


def test_the_nucleus_is_taken_among_the_ids_that_are_offered() -> None:
    # Ids 0, 1 and 2 have 1, 2 and 3 sixths.
    assert nucleus(0.5, offered=[0, 1, 2]) == {2: 1.0}
    assert nucleus(0.6, offered=[0, 1, 2]) == {1: 2 / 5, 2: 3 / 5}


def test_each_row_has_its_own_top_p_and_a_row_without_one_stays_as_it_was_to_the_last_bit() -> None:
    uniform = np.array([0.05, 0.05, 0.05, 0.05])
    offered: list[list[int]] = [[], [], [0, 1], [1, 0, 2]]
    tokens, logprobs = sample(
        LOGITS.repeat(4, 1), offered=offered, temperatures=[1.0] * 4, top_ps=[1.0, 0.6, 1.0, 0.6], uniform=uniform
    )
    before = sample(LOGITS.repeat(4, 1), offered=offered, temperatures=[1.0] * 4, uniform=uniform)
    assert tokens == [0, 2, 0, 1]
    assert (logprobs[0], logprobs[2]) == (before[1][0], before[1][2])
    assert (logprobs[1], logprobs[3]) == pytest.approx((math.log(3 / 7), math.log(2 / 5)), abs=1e-6)


def test_frequencies_follow_the_distribution() -> None:
    count = 20_000
    uniform = uniforms([7] * count, range(count))
    tokens, _ = sample(LOGITS.repeat(count, 1), offered=[[]] * count, temperatures=[1.0] * count, uniform=uniform)
    shares = np.bincount(tokens, minlength=4) / count
    # Three standard errors of a share of 0.5 are 0.0106.
    assert shares == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.011)


def test_uniforms_depend_on_seed_and_position_alone() -> None:
    together = uniforms([1, 1, 2, -5, 1 << 70], [3, 4, 3, 0, 0])
    alone = [uniforms([seed], [position])[0] for seed, position in [(1, 3), (1, 4), (2, 3), (-5, 0), (1 << 70, 0)]]
    assert together.tolist() == alone
    assert len(set(alone)) == 5
    assert all(0 <= value < 1 for value in alone)
