"""Golden numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rla.config.training import TrainConfig
from rla.training.losses import LossInputs, cispo, policy_loss, ppo_clip


def ratios(*values: float) -> Tensor:
    return torch.tensor([math.log(value) for value in values], dtype=torch.float64)


def inputs(
    logp: Tensor,
    *advantages: float,
    reply: list[int] | None = None,
    segment: list[int] | None = None,
    mask: list[bool] | None = None,
) -> LossInputs:
    """Old log-probabilities 0, so that `logp` is log r. A single reply and a single segment, where none are given."""
    zeros = torch.zeros(len(logp), dtype=torch.float64)
    return LossInputs(
        logp=logp,
        logp_old=zeros,
        logp_sampled=zeros,
        advantage=torch.tensor(advantages, dtype=torch.float64),
        mask=torch.tensor(mask or [True] * len(logp), dtype=torch.bool),
        reply=torch.tensor(reply or [0] * len(logp), dtype=torch.long),
        segment=torch.tensor(segment or [0] * len(logp), dtype=torch.long),
    )


def test_clip_bounds_what_an_update_can_gain() -> None:
    """Ratios 1.5 and 0.5 with both signs of the advantage, bounds 0.8 and 1.3."""
    given = inputs(ratios(1.5, 1.5, 0.5, 0.5), 2.0, -2.0, 2.0, -2.0)
    loss, marks = ppo_clip(given, clip_low=0.2, clip_high=0.3)
    # min(3.0, 2.6), min(-3.0, -2.6), min(1.0, 1.6), min(-1.0, -1.6), negated
    assert loss.tolist() == pytest.approx([-2.6, 3.0, -1.0, 1.6])
    assert marks["clip_high_share"].tolist() == [1, 0, 0, 0]
    assert marks["clip_low_share"].tolist() == [0, 0, 0, 1]
    assert marks["ratio"].tolist() == pytest.approx([1.5, 1.5, 0.5, 0.5])
    assert marks["approx_kl"][0].item() == pytest.approx(0.5 - math.log(1.5))
    assert "dual_clip_share" not in marks


def test_a_clipped_token_has_no_gradient_and_an_unclipped_one_ratio_times_advantage() -> None:
    logp = ratios(1.5, 1.1).requires_grad_()
    loss, _ = ppo_clip(inputs(logp, 1.0, 1.0), clip_low=0.2, clip_high=0.2)
    loss.sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([0.0, -1.1])


def test_the_dual_clip_bounds_what_a_bad_token_can_cost() -> None:
    """Ratios 2 and 5 at A = -1 and c = 3: losses 2 and 3 instead of 5, and no gradient beyond; A = 1 is not touched."""
    logp = ratios(2.0, 5.0, 5.0).requires_grad_()
    loss, marks = ppo_clip(inputs(logp, -1.0, -1.0, 1.0), clip_low=0.2, clip_high=0.28, dual_clip=3.0)
    assert loss.tolist() == pytest.approx([2.0, 3.0, -1.28])
    assert marks["dual_clip_share"].tolist() == [0, 1, 0]
    loss.sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([2.0, 0.0, 0.0])


def test_a_ratio_per_reply_is_the_geometric_mean_over_its_masked_tokens() -> None:
    """Reply 0: ratios 4 and 1, so 2; reply 1: 9, and 7 that the mask hides, so 9. A token has half of the gradient."""
    logp = ratios(4.0, 1.0, 9.0, 7.0).requires_grad_()
    given = inputs(logp, -1.0, -1.0, -1.0, -1.0, reply=[0, 0, 1, 1], mask=[True, True, True, False])
    loss, marks = ppo_clip(given, clip_low=0.2, clip_high=0.2, level="reply")
    assert marks["ratio"].tolist() == pytest.approx([2.0, 2.0, 9.0, 9.0])
    loss[:2].sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([2.0, 2.0, 0.0, 0.0])


def test_cispo_weighs_the_gradient_and_never_removes_it() -> None:
    logp = ratios(0.5, 3.0).requires_grad_()
    loss, marks = cispo(inputs(logp, 2.0, 2.0), clip_high=1.5)
    assert loss.tolist() == pytest.approx([-0.5 * 2 * math.log(0.5), -1.5 * 2 * math.log(3.0)])
    assert marks["clip_high_share"].tolist() == [0, 1]
    loss.sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([-1.0, -3.0])


def test_no_tokens_give_no_loss() -> None:
    loss, _ = ppo_clip(inputs(ratios()), clip_low=0.2, clip_high=0.2, level="reply")
    assert loss.tolist() == []


TCR = TrainConfig(clip_low=0.2, clip_high=0.28, dual_clip=10.0)
SCR = TrainConfig(loss="gspo", ratio="segment", aggregation="trajectory", clip_low=3e-4, clip_high=4e-4)


def test_the_published_figures_of_grpo_tcr() -> None:
    """Section 7.2 of the reference: A = 1 at ratios 0.5, 1.28, 1.5 and A = -1 at 0.5, 1.5, 5, 12."""
    given = inputs(ratios(0.5, 1.28, 1.5, 0.5, 1.5, 5.0, 12.0), 1, 1, 1, -1, -1, -1, -1)
    loss, _ = policy_loss(given, TCR)
    assert loss.tolist() == pytest.approx([-0.5, -1.28, -1.28, 0.8, 1.5, 5.0, 10.0])


def test_a_ratio_per_segment_is_the_geometric_mean_over_all_of_its_replies() -> None:
    """Segment 0 has two replies and ratios 8, 1, 1: 2 throughout; segment 1: 9, and 7 that the mask hides, so 9."""
    given = inputs(
        ratios(8.0, 1.0, 1.0, 9.0, 7.0),
        *[-1.0] * 5,
        reply=[0, 0, 1, 2, 2],
        segment=[0, 0, 0, 1, 1],
        mask=[True, True, True, True, False],
    )
    loss, marks = ppo_clip(given, clip_low=0.2, clip_high=0.2, level="segment")
    assert marks["ratio"].tolist() == pytest.approx([2.0, 2.0, 2.0, 9.0, 9.0])
    assert loss.tolist() == pytest.approx([2.0, 2.0, 2.0, 9.0, 9.0])


def test_steps_of_a_segment_follow_their_own_advantages() -> None:
    """Ratios 2, 1/2: 1 for both, whose gradient is -A of each token and not the mean over the segment."""
    logp = ratios(2.0, 0.5).requires_grad_()
    loss, _ = ppo_clip(inputs(logp, 1.0, -3.0, reply=[0, 1]), clip_low=0.2, clip_high=0.2, level="segment")
    loss.sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([-1.0, 3.0])


def test_grpo_scr_clips_whole_trajectories_by_ten_thousandths() -> None:
    """s = 1.0005 and 0.9996 of two tokens each: the first is clipped where A = 1, the second where A = -1."""
    steps = ratios(1.001, 1.0, 0.9992, 1.0)
    lone = [math.sqrt(1.001), math.sqrt(0.9992)]
    loss, marks = policy_loss(inputs(steps, 1, 1, 1, 1, segment=[0, 0, 1, 1]), SCR)
    assert loss.tolist() == pytest.approx([-1.0004, -1.0004, -lone[1], -lone[1]])
    assert marks["clip_high_share"].tolist() == [1, 1, 0, 0]
    loss, marks = policy_loss(inputs(steps, -1, -1, -1, -1, segment=[0, 0, 1, 1]), SCR)
    assert loss.tolist() == pytest.approx([lone[0], lone[0], 0.9997, 0.9997])
    assert marks["clip_low_share"].tolist() == [0, 0, 1, 1]


def test_gspo_takes_the_reply_unless_the_segment_is_named() -> None:
    given = inputs(ratios(4.0, 1.0), -1.0, -1.0, reply=[0, 1])
    for ratio, expected in (("token", [4.0, 1.0]), ("reply", [4.0, 1.0]), ("segment", [2.0, 2.0])):
        loss, _ = policy_loss(given, TrainConfig(loss="gspo", ratio=ratio, dual_clip=0.0))  # type: ignore[arg-type]
        assert loss.tolist() == pytest.approx(expected)


LOSSES = [
    pytest.param({"loss": "ppo_clip"}, id="ppo_clip"),
    pytest.param({"loss": "ppo_clip", "ratio": "segment"}, id="ppo_clip-segment"),
    pytest.param({"loss": "gspo"}, id="gspo"),
    pytest.param({"loss": "gspo", "ratio": "segment"}, id="gspo-segment"),
    pytest.param({"loss": "cispo", "clip_high": 5.0}, id="cispo"),
    pytest.param({"loss": "cispo", "clip_high": 5.0, "ratio": "reply"}, id="cispo-reply"),
]


@pytest.mark.parametrize("beyond", [9999.0, 89.0, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("chosen", LOSSES)
def test_a_token_whose_ratio_is_beyond_use_is_masked_and_counted(chosen: dict[str, Any], beyond: float) -> None:
    """A sampler that reports -9999 (vLLM's minus infinity) gives a log-ratio of 9999."""
    logp = torch.tensor([beyond, 0.1, -0.1], dtype=torch.float64).requires_grad_()
    loss, marks = policy_loss(inputs(logp, 1.0, -1.0, 1.0), TrainConfig(**chosen))
    loss.sum().backward()
    alone = torch.tensor([0.1, -0.1], dtype=torch.float64).requires_grad_()
    policy_loss(inputs(alone, -1.0, 1.0), TrainConfig(**chosen))[0].sum().backward()
    assert logp.grad is not None and alone.grad is not None
    assert logp.grad.tolist() == pytest.approx([0.0, *alone.grad.tolist()])
    assert marks["extreme_tokens"].tolist() == [1, 0, 0]
    assert loss.isfinite().all() and marks["ratio"].isfinite().all() and marks["approx_kl"].isfinite().all()


def test_a_unit_whose_mean_ratio_is_beyond_use_is_masked_as_a_whole() -> None:
    logp = torch.tensor([21.0, 21.0, 0.5], dtype=torch.float64).requires_grad_()
    loss, marks = policy_loss(inputs(logp, -1.0, -1.0, -1.0, reply=[0, 0, 1]), TrainConfig(loss="gspo"))
    assert marks["extreme_tokens"].tolist() == [1, 1, 0]
    assert loss.tolist()[:2] == [0.0, 0.0]
