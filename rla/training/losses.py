"""Losses on the sampled tokens: pure functions from 1-D tensors (one entry per token) to a loss per token.

    r = exp(logp - logp_old) per token, or exp(mean over the tokens of logp - logp_old) per reply or per segment
    ppo_clip   -min(r A, clip(r, 1 - low, 1 + high) A); with `dual_clip` c, never above c |A| where A < 0
    gspo       the same with the reply's r, or the segment's (Zheng et al. 2025)
    cispo      -min(r, high) A logp, the factor without gradient: no token loses its gradient (MiniMax 2025)

A reply answers one request: the tokens of one step, or of one judgement. A segment continues one prompt: all replies of
an episode whose history is one dialogue, without the observations between them. Steps of a segment may have different
advantages, and each token has to follow its own. So the gradient of a segment's r is taken as in GSPO-token, r without
gradient times the token's own ratio; if all advantages of a segment are equal, both are the same.
Sources: Schulman et al. 2017; Ye et al. 2020 (dual clip); names and conventions as in TRL.

`token_weights` leads from losses per token to the loss of an optimizer step, which is a weighted sum:

    token        1 / N                      N: loss tokens of the step
    sequence     1 / (R n_r)                R replies; n_r: loss tokens of the token's reply
    trajectory   1 / (T n_t)                T trajectories; n_t: loss tokens of the token's trajectory
    fixed        1 / (R L)                  L: `max_tokens` (Dr. GRPO: the longest reply that is allowed)
    trajectory_fixed   1 / (T L)            the same of whole trajectories

verl's names for these are token-mean, seq-mean-token-mean (`sequence` if a trajectory is one reply, else
`trajectory`), seq-mean-token-sum-norm and seq-mean-token-sum (`fixed`, and `trajectory_fixed` times L). Its
token-mean is taken over each micro-batch, so it depends on the cut; the one here does not.

The weights are computed from the whole step before it is cut into passes and spread over processes, so the sums are
exact whatever the cut.

Further terms are added to a loss or multiplied with it:

    k3          exp(logp_ref - logp) - (logp_ref - logp) - 1            (Schulman 2020: unbiased, never negative)
    correction  min(exp(logp_old - logp_sampled), cap)                  per token (Yao et al. 2025, truncated importance
                min(exp(sum over the reply of logp_old - logp_sampled), cap)   per reply        sampling), no gradient

The correction makes up for an engine whose log-probabilities are not the trainer's: other kernels, another precision.
Tokens whose log-ratio is `extreme` count as equal in all of these: the ratio says nothing of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from rla.config.training import TrainConfig
from rla.training.sequences import TrainingSequence

Marks = dict[str, Tensor]
MOST_LOG_RATIO = 20.0  # as verl bounds it: a ratio of 5e8 is a fault of the engine, and e^89 is infinite in fp32
CORRECTION_CAP = 2.0  # as in the paper of truncated importance sampling
Level = Literal["token", "reply", "segment"]
Correction = Literal["token", "reply"]
Aggregation = Literal["token", "sequence", "trajectory", "fixed", "trajectory_fixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """All [N], one entry per token of a forward pass.

    `logp` has the gradient. `logp_old`: of the policy that the ratio is taken against; `logp_sampled`: as the engine
    drew the token; `logp_ref`: of the KL reference. `mask` is false on tokens that do not train. `reply` and `segment`
    number the replies and the segments from 0; all tokens of a segment are in the same pass.
    """

    logp: Tensor
    logp_old: Tensor
    logp_sampled: Tensor
    advantage: Tensor
    mask: Tensor
    reply: Tensor
    segment: Tensor
    logp_ref: Tensor | None = None


def _unit_sum(values: Tensor, mask: Tensor, units: Tensor) -> Tensor:
    """The sum over the masked tokens of a token's unit, at each of its tokens. `units` numbers them from 0."""
    count = int(units.max()) + 1 if len(units) else 0
    return values.new_zeros(count).index_add(0, units, values * mask)[units]


def _unit_mean(values: Tensor, mask: Tensor, units: Tensor) -> Tensor:
    """The mean over the masked tokens of a token's unit, at each of its tokens."""
    ones = values.new_ones(values.shape)
    return _unit_sum(values, mask, units) / _unit_sum(ones, mask, units).clamp(min=1)


def extreme(log_ratio: Tensor) -> Tensor:
    """Whether a token's log-ratio is beyond use: not finite, or above `MOST_LOG_RATIO`.

    vLLM writes minus infinity as -9999. `exp` of such a ratio is infinite and its gradient NaN, even if it is clipped.
    """
    fixed = log_ratio.detach()
    return ~fixed.isfinite() | (fixed > MOST_LOG_RATIO)


def _importance(inputs: LossInputs, level: Level) -> tuple[Tensor, Tensor]:
    """log r of every token, and whether the token is masked because its ratio, or its unit's, is `extreme`.

    A masked token has log r = 0 and no gradient, and its unit's mean is taken over the others.
    """
    log_ratio = inputs.logp - inputs.logp_old
    outside = extreme(log_ratio)
    log_ratio = log_ratio.masked_fill(outside, 0.0)
    mask = inputs.mask & ~outside
    if level == "reply":
        log_ratio = _unit_mean(log_ratio, mask, inputs.reply)
    elif level == "segment":
        fixed = log_ratio.detach()
        log_ratio = _unit_mean(fixed, mask, inputs.segment) + (log_ratio - fixed)  # the value of the mean
    outside = outside | extreme(log_ratio)
    return log_ratio.masked_fill(outside, 0.0), outside


def ppo_clip(
    inputs: LossInputs, *, clip_low: float, clip_high: float, dual_clip: float = 0.0, level: Level = "token"
) -> tuple[Tensor, Marks]:
    """Loss per token, and the values per token, without gradient, that the metrics are made of.

    `clip_low_share` and `clip_high_share` mark tokens whose gradient the clip removed, `dual_clip_share` those that the
    second bound removed (0: no such bound), `approx_kl` estimates KL(old, new) by k3, `ratio` is r, `extreme_tokens`
    marks those that are masked because r is beyond use.
    """
    log_ratio, outside = _importance(inputs, level)
    ratio, advantage = log_ratio.exp(), inputs.advantage
    bounded = ratio.clamp(max=dual_clip) if dual_clip else ratio
    loss = -(bounded * advantage).minimum(ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)
    loss = loss.masked_fill(outside, 0.0)
    ratio = ratio.detach()
    marks = {
        "clip_low_share": ((ratio < 1 - clip_low) & (advantage < 0)).to(loss.dtype),
        "clip_high_share": ((ratio > 1 + clip_high) & (advantage > 0)).to(loss.dtype),
        "approx_kl": ratio - 1 - log_ratio.detach(),
        "ratio": ratio,
        "extreme_tokens": outside.to(loss.dtype),
    }
    if dual_clip:
        marks["dual_clip_share"] = ((ratio > dual_clip) & (advantage < 0)).to(loss.dtype)
    return loss, marks


def cispo(inputs: LossInputs, *, clip_high: float, level: Level = "token") -> tuple[Tensor, Marks]:
    """Loss per token and marks. `clip_high` bounds r itself (5 means r <= 5), as TRL has it."""
    log_ratio, outside = _importance(inputs, level)
    log_ratio = log_ratio.detach()
    ratio = log_ratio.exp()
    loss = -ratio.clamp(max=clip_high) * inputs.advantage * inputs.logp.masked_fill(outside, 0.0)
    marks = {
        "clip_high_share": ((ratio > clip_high) & (inputs.advantage > 0)).to(loss.dtype),
        "approx_kl": ratio - 1 - log_ratio,
        "ratio": ratio,
        "extreme_tokens": outside.to(loss.dtype),
    }
    return loss, marks


def policy_loss(inputs: LossInputs, config: TrainConfig) -> tuple[Tensor, Marks]:
    if config.loss == "cispo":
        return cispo(inputs, clip_high=config.clip_high, level=config.ratio)
    level: Level = "reply" if config.loss == "gspo" and config.ratio == "token" else config.ratio
    return ppo_clip(
        inputs, clip_low=config.clip_low, clip_high=config.clip_high, dual_clip=config.dual_clip or 0.0, level=level
    )


def k3(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """An estimate, per token, of KL(policy, reference) from tokens that the policy sampled."""
    difference = logp_ref - logp
    difference = difference.masked_fill(extreme(difference), 0.0)
    return difference.exp() - difference - 1


def correction(inputs: LossInputs, *, level: Correction, cap: float = CORRECTION_CAP) -> Tensor:
    """Trainer / sampler of every token, or with `reply` of its whole reply, at most `cap`; without gradient."""
    gap = (inputs.logp_old - inputs.logp_sampled).detach()
    gap = gap.masked_fill(extreme(gap), 0.0)
    gap = _unit_sum(gap, inputs.mask, inputs.reply) if level == "reply" else gap
    return gap.clamp(max=MOST_LOG_RATIO).exp().clamp(max=cap)


def token_weights(
    sequences: Iterable[TrainingSequence], aggregation: Aggregation, *, fixed_length: int = 0
) -> Callable[[TrainingSequence], list[float]]:
    """Of an optimizer step's sequences, which are counted one by one: the weights of the loss tokens of one of them.

    All weights of the step add up to 1, unless they are divided by a fixed length.
    """
    sizes: Counter[tuple[str, int]] = Counter()
    replies = 0
    for one in sequences:
        own = Counter(_units(one, aggregation))
        replies += len(own)
        sizes.update(own)
    total = sum(sizes.values())

    def weights(one: TrainingSequence) -> list[float]:
        units = _units(one, aggregation)
        if aggregation == "token":
            return [1 / total] * len(units)
        if aggregation == "trajectory":
            return [1 / (len(sizes) * sizes[unit]) for unit in units]
        if aggregation == "fixed":
            return [1 / (replies * fixed_length)] * len(units)
        if aggregation == "trajectory_fixed":
            return [1 / (len(sizes) * fixed_length)] * len(units)
        own = Counter(units)
        return [1 / (replies * own[unit]) for unit in units]

    return weights


def _units(one: TrainingSequence, aggregation: Aggregation) -> list[tuple[str, int]]:
    """The unit of each loss token: its trajectory, or its reply, which lies in one sequence."""
    whole = aggregation in ("trajectory", "trajectory_fixed")
    return [(one.owner, 0 if whole else reply) for reply in one.reply_numbers()]
