"""Inverse-CDF sampling: golden numbers by hand, and the distribution over many uniforms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rla.llm.sampling import sample, uniforms

# Probabilities 0.1, 0.2, 0.3, 0.4 at temperature 1; cumulated 0.1, 0.3, 0.6, 1.0.
LOGITS = torch.log(torch.tensor([[0.1, 0.2, 0.3, 0.4]]))


def draw(u: float, *, offered: list[int] | None = None, temperature: float = 1.0) -> tuple[int, float]:
    tokens, logprobs = sample(LOGITS, offered=[offered or []], temperatures=[temperature], uniform=np.array([u]))
    return tokens[0], logprobs[0]


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
