"""Golden numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rla.training.losses import Correction, LossInputs, correction, k3


def test_k3_is_zero_at_the_reference_and_positive_elsewhere() -> None:
    logp = torch.tensor([0.0, math.log(2.0), -math.log(2.0)], dtype=torch.float64)
    # r = ref / policy = 1, 1/2, 2: r - 1 - log r
    expected = [0.0, -0.5 + math.log(2.0), 1.0 - math.log(2.0)]
    assert k3(logp, torch.zeros(3).double()).tolist() == pytest.approx(expected)


def sampled_with_ratios(*values: float) -> LossInputs:
    """Trainer / sampler of each token; two replies of two tokens."""
    zeros = torch.zeros(4)
    return LossInputs(
        logp=zeros,
        logp_old=torch.tensor([math.log(value) for value in values], requires_grad=True),
        logp_sampled=zeros,
        advantage=zeros,
        mask=torch.ones(4, dtype=torch.bool),
        reply=torch.tensor([0, 0, 1, 1]),
        segment=torch.zeros(4, dtype=torch.long),
    )


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("token", [1.5, 0.5, 2.0, 3.0]),  # 4 is cut to 3
        ("reply", [0.75, 0.75, 3.0, 3.0]),  # 1.5 * 0.5; 2 * 4 is cut to 3
    ],
)
def test_the_sampler_is_corrected_up_to_the_cap(level: Correction, expected: list[float]) -> None:
    factor = correction(sampled_with_ratios(1.5, 0.5, 2.0, 4.0), level=level, cap=3.0)
    assert factor.tolist() == pytest.approx(expected)
    assert not factor.requires_grad


@pytest.mark.parametrize("difference", [9999.0, 89.0, math.inf, math.nan])
def test_a_reference_beyond_use_adds_nothing_to_the_divergence(difference: float) -> None:
    logp = torch.tensor([0.0, math.log(2.0)], dtype=torch.float64).requires_grad_()
    kl = k3(logp, torch.tensor([difference, 0.0], dtype=torch.float64))
    kl.sum().backward()
    assert kl.tolist() == pytest.approx([0.0, -0.5 + math.log(2.0)])
    assert logp.grad is not None and logp.grad.tolist() == pytest.approx([0.0, 0.5])


def test_a_token_of_unknown_probability_leaves_the_correction_of_its_reply_alone() -> None:
    given = sampled_with_ratios(1.0, 1.5, 1.0, 1.0)
    sampled = torch.tensor([-9999.0, 0.0, 0.0, 0.0])
    given = replace(given, logp_sampled=sampled)
    assert correction(given, level="reply", cap=3.0).tolist() == pytest.approx([1.5, 1.5, 1.0, 1.0])
