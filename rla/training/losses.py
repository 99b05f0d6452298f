"""Losses on the sampled tokens: pure functions from 1-D tensors (one entry per token) to a loss per token.

Clipped policy gradient (Schulman et al. 2017, with a bound of its own on each side):
    r = exp(logp - logp_old);  loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)
KL to a reference (k3, Schulman 2020: unbiased, never negative):
    k3 = exp(logp_ref - logp) - (logp_ref - logp) - 1
Aggregation: the sum over the loss tokens of a whole optimizer step, divided by their exact number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def ppo_clip(
    logp: Tensor, logp_old: Tensor, advantage: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss per token and, per token and without gradient, what the metrics are made of.

    `clip_low` and `clip_high` mark tokens whose gradient the clip removed, `approx_kl` estimates KL(old, new)
    by k3, `ratio` is the importance ratio.
    """
    log_ratio = logp - logp_old
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = -(ratio * advantage).minimum(clipped * advantage)
    ratio = ratio.detach()
    return loss, {
        "clip_low_share": ((ratio < 1 - clip_low) & (advantage < 0)).to(loss.dtype),
        "clip_high_share": ((ratio > 1 + clip_high) & (advantage > 0)).to(loss.dtype),
        "approx_kl": ratio - 1 - log_ratio.detach(),
        "ratio": ratio,
    }


def k3(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """An estimate, per token, of KL(policy, reference) from tokens that the policy sampled."""
    difference = logp_ref - logp
    return difference.exp() - difference - 1


def token_mean(per_token: Tensor, *, tokens: int) -> Tensor:
    """This part's share of the mean over `tokens` loss tokens: the parts of an optimizer step add up to the
    mean.
    """
    return per_token.sum() / tokens
