"""Golden numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from rla.training.losses import k3, ppo_clip, token_mean


def ratios(*values: float) -> torch.Tensor:
    return torch.tensor([math.log(value) for value in values], dtype=torch.float64)


def test_clip_bounds_what_an_update_can_gain() -> None:
    """Ratios 1.5 and 0.5 with both signs of the advantage, bounds 0.8 and 1.3."""
    advantage = torch.tensor([2.0, -2.0, 2.0, -2.0], dtype=torch.float64)
    loss, marks = ppo_clip(ratios(1.5, 1.5, 0.5, 0.5), torch.zeros(4).double(), advantage, clip_low=0.2, clip_high=0.3)
    # min(3.0, 2.6), min(-3.0, -2.6), min(1.0, 1.6), min(-1.0, -1.6), negated
    assert loss.tolist() == pytest.approx([-2.6, 3.0, -1.0, 1.6])
    assert marks["clip_high_share"].tolist() == [1, 0, 0, 0]
    assert marks["clip_low_share"].tolist() == [0, 0, 0, 1]
    assert marks["ratio"].tolist() == pytest.approx([1.5, 1.5, 0.5, 0.5])
    assert marks["approx_kl"][0].item() == pytest.approx(0.5 - math.log(1.5))


def test_a_clipped_token_has_no_gradient_and_an_unclipped_one_ratio_times_advantage() -> None:
    logp = ratios(1.5, 1.1).requires_grad_()
    loss, _ = ppo_clip(logp, torch.zeros(2).double(), torch.ones(2).double(), clip_low=0.2, clip_high=0.2)
    loss.sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([0.0, -1.1])


def test_k3_is_zero_at_the_reference_and_positive_elsewhere() -> None:
    logp = torch.tensor([0.0, math.log(2.0), -math.log(2.0)], dtype=torch.float64)
    # r = ref / policy = 1, 1/2, 2: r - 1 - log r
    expected = [0.0, -0.5 + math.log(2.0), 1.0 - math.log(2.0)]
    assert k3(logp, torch.zeros(3).double()).tolist() == pytest.approx(expected)


def test_micro_batches_of_any_size_add_up_to_the_mean_over_all_tokens() -> None:
    losses = torch.tensor([1.0, 2.0, 6.0])
    parts = token_mean(losses[:1], tokens=3) + token_mean(losses[1:], tokens=3)
    assert parts.item() == pytest.approx(3.0)
