"""What is added to a loss or multiplied with it: KL to a reference, correction of the sampler, entropy.

    k3          exp(logp_ref - logp) - (logp_ref - logp) - 1            (Schulman 2020: unbiased, never negative)
    correction  min(exp(logp_old - logp_sampled), cap)                  per token (Yao et al. 2025, truncated importance
                min(exp(sum over the reply of logp_old - logp_sampled), cap)   per reply        sampling), no gradient

    masked      exp(the same) < low, or > high                      (Ling team 2025: such tokens have no gradient)

The correction makes up for an engine whose log-probabilities are not the trainer's: other kernels, another precision.
Tokens whose log-ratio is `rla.training.losses.extreme` count as equal in all of these: the ratio says nothing of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rla.training.losses import MOST_LOG_RATIO, LossInputs, extreme, unit_sum

if TYPE_CHECKING:
    from torch import Tensor

Correction = Literal["auto", "none", "token", "reply"]


def k3(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """An estimate, per token, of KL(policy, reference) from tokens that the policy sampled."""
    difference = logp_ref - logp
    difference = difference.masked_fill(extreme(difference), 0.0)
    return difference.exp() - difference - 1


def sampler_ratio(inputs: LossInputs, *, level: Correction) -> Tensor:
    """Trainer / sampler of every token, or with `reply` of its whole reply; without gradient."""
    gap = (inputs.logp_old - inputs.logp_sampled).detach()
    gap = gap.masked_fill(extreme(gap), 0.0)
    return (unit_sum(gap, inputs.mask, inputs.reply) if level == "reply" else gap).clamp(max=MOST_LOG_RATIO).exp()


def correction(inputs: LossInputs, *, level: Correction, cap: float) -> Tensor:
    """The factor of every token's loss, at most `cap`."""
    ratio = sampler_ratio(inputs, level=level)
    return ratio.clamp(max=cap) if level in ("token", "reply") else ratio.new_ones(ratio.shape)


def masked(inputs: LossInputs, *, level: Correction, low: float, high: float) -> Tensor:
    """Of every token whether its ratio leaves [low, high]; a `high` of 0 is no bound."""
    ratio = sampler_ratio(inputs, level=level)
    return (ratio < low) | (ratio > (high or float("inf")))
