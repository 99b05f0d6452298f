"""From episodes and judgements to the advantages of both models, as the `credit` section says.

An estimator takes an episode's score for its outcome O:

    score = O, or with `outcome: reward` the reward that the environment counted, if it counted any
    if score < 0      score = min(-0.6, score + 0.1 k)         `wrong` and `both`; `published` has k = -1 throughout
    if O > 0          score = score + 0.1 k                    `both`
    score = score - clip((L - start) / (end - start), 0, 1)    `overlong`: [start, end]; equal: a step

k: tool rounds, the steps with at least one call that was run, whatever came of it. L: tokens from the first that was
sampled to the last, results of tools included; if every step has a prompt of its own, the tokens of all replies.

`published` is the paper's code, whose scorer never learns of the rounds: every wrong answer gets -1.1, and no call
earns anything. `both` is equation 8 of the paper, `wrong` the intention of its code. A code answer that passes some of
its tests (`outcome: reward`) is neither wrong nor won and gains nothing.
Source: Yu et al., Demystifying Reinforcement Learning in Agentic Reasoning (2025); the penalty is from DAPO (2025).

With `credit.judged: baseline` the judgement of the step before is a baseline: it reduces noise and pays for nothing.

    A_i from R_i = O - c S_(i-1)          S_(i-1): mean valid vote of the step before; first step: the task's mean
    c = sum (O - mean O) (S_(i-1) - mean S) / sum (S_(i-1) - mean S)^2
        over the steps of tasks that train, means within the task
    lambda' = lambda * min(1, max(0, c))

A judgement made before an action does not depend on it, so E[grad log pi(a_i) S_(i-1)] = 0: the gradient points in the
direction of outcomes alone, and a judgement cannot be earned. That holds up to terms of order c / n for n episodes of a
task, because the mean and the spread of the task, the first step's S, and c come from the same episodes, like the group
mean of GRPO. A good judge reduces noise: with the correlation r of O and S_(i-1) within a task, the least-squares
weight leaves 1 - r^2 of the variance of O. A judge that knows nothing has c near 0, a judge that is always wrong a
negative c, which counts as 0. With c above 1 a judge would be paid for votes against the outcome (R_i S with R_i = O +
lambda' S), so c is at most 1. Source: REINFORCE with a baseline (Williams, 1992); control variates.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from rla.config.sections import CreditConfig, ShapingConfig
from rla.credit import estimators
from rla.credit.consistency import rewards as consistency_rewards
from rla.credit.estimators import POLICY_REWARDS, TOLERANCE, in_schema

BONUS, LARGEST_WRONG = 0.1, -0.6  # for a tool round, and the largest score of a wrong answer
ROUNDS_AS_PUBLISHED = -1


def both_advantages(
    episodes: pl.DataFrame, steps: pl.DataFrame, judgements: pl.DataFrame, config: CreditConfig
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of `policy_rewards` and of `rm_rewards`, both of `episodes` alone; `config` is `weighed` already.

    The policy's estimators take the shaped score. Accuracies and the reward model's rewards follow from the outcome
    itself and from the judgements as they were given.
    """
    own = steps.join(episodes.select("trajectory_id"), on="trajectory_id", how="semi")
    paid = with_baseline(own) if config.judged == "baseline" else own
    policy = policy_advantages(scored_episodes(episodes, config.shaping), paid, config)
    accuracy = estimators.accuracies(episodes)
    if config.estimator != "step":  # which needs no outcomes
        policy = only_mixed(policy, accuracy, config.policy_band)
    given = own.select("trajectory_id", "step", "mean_score")
    policy = in_schema(policy.drop("mean_score").join(given, on=["trajectory_id", "step"]), POLICY_REWARDS)
    return policy, consistency_rewards(judgements, policy, accuracy, config)


def policy_advantages(episodes: pl.DataFrame, steps: pl.DataFrame, config: CreditConfig) -> pl.DataFrame:
    """The rows of the estimator that `config` names; arguments as for `rla.credit.estimators`."""
    normalise, spread = config.normalise, config.shaping.spread
    match config.estimator:
        case "integrated":
            return estimators.integrated_advantages(
                episodes, steps, step_weight=config.step_weight, normalise=normalise, spread=spread
            )
        case "outcome":
            return estimators.outcome_advantages(episodes, steps, spread=spread)
        case "step":
            return estimators.step_advantages(episodes, steps, normalise=normalise, spread=spread)
        case "anchor":
            return estimators.anchor_advantages(episodes, steps, spread=spread)


def weighed(config: CreditConfig, episodes: pl.DataFrame, steps: pl.DataFrame) -> CreditConfig:
    """The section with the lambda of these episodes: if the judgements are a baseline, times its least-squares weight.

    The weight is fitted on the tasks that train the policy.
    """
    if config.judged == "step":
        return config
    training = _mixed_tasks(estimators.accuracies(episodes), config.policy_band)
    scored = scored_episodes(episodes, config.shaping).filter(pl.col("task_id").is_in(training.implode()))
    own = steps.join(scored.select("trajectory_id"), on="trajectory_id", how="semi")
    return replace(config, step_weight=config.step_weight * baseline_weight(scored, own))


def only_mixed(policy: pl.DataFrame, accuracy: pl.DataFrame, band: tuple[float, float]) -> pl.DataFrame:
    """Advantage 0 for tasks outside low < accuracy < high of the band.

    Equal outcomes cancel in the standardisation, and the judge's noise alone, scaled up to unit spread, would train the
    policy.
    """
    kept = pl.col("task_id").is_in(_mixed_tasks(accuracy, band).implode())
    return policy.with_columns(advantage=pl.when(kept).then("advantage").otherwise(0.0))


def _mixed_tasks(accuracy: pl.DataFrame, band: tuple[float, float]) -> pl.Series:
    """Ids of the tasks with low < accuracy < high of the band."""
    low, high = band
    return accuracy.filter((pl.col("accuracy") > low) & (pl.col("accuracy") < high))["task_id"]


def scored_episodes(episodes: pl.DataFrame, config: ShapingConfig) -> pl.DataFrame:
    """The episodes with the column `score`.

    `episodes`: outcome; with `config.of_episodes` also reward (nullable), tool_rounds and response_tokens, which
    `rla.store.frames.read_episodes` measures.
    """
    sign = pl.col("outcome").cast(pl.Float64)
    score = pl.coalesce(pl.col("reward").cast(pl.Float64), sign) if config.outcome == "reward" else sign
    if config.tool_bonus != "none":
        rounds = pl.lit(ROUNDS_AS_PUBLISHED) if config.tool_bonus == "published" else pl.col("tool_rounds")
        raised = score + BONUS * rounds
        right = raised if config.tool_bonus == "both" else score
        wrong = pl.min_horizontal(raised, pl.lit(LARGEST_WRONG))
        score = pl.when(score < 0).then(wrong).when(pl.col("outcome") > 0).then(right).otherwise(score)
    start, end = config.overlong
    if end:
        over = pl.col("response_tokens").cast(pl.Int64) - start
        step = pl.when(over > 0).then(1.0).otherwise(0.0)
        score = score - ((over / (end - start)).clip(0.0, 1.0) if start < end else step)
    return episodes.with_columns(score=score)


def with_baseline(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps in key order; `mean_score` is -S_(i-1), null in tasks without any vote.

    `steps`: trajectory_id, task_id, step, mean_score. After a step without votes, S_(i-1) is the vote of the last step
    that has some; for the first step it is the mean over the task, which says nothing about the episode.
    """
    earlier = pl.col("mean_score").forward_fill().shift(1).over("trajectory_id")
    ordered = steps.sort("trajectory_id", "step").with_columns(mean_score=-earlier.cast(pl.Float64))
    return ordered.with_columns(pl.col("mean_score").fill_null(pl.col("mean_score").mean().over("task_id")))


def baseline_weight(episodes: pl.DataFrame, steps: pl.DataFrame) -> float:
    """min(1, max(0, c)); 0 if no task has different judgements, or different outcomes.

    `episodes`: trajectory_id, task_id, score (of the outcome, perhaps shaped). `steps`: trajectory_id, task_id, step,
    mean_score; steps of other episodes are ignored. The votes must come from a reward model that has not trained on
    these episodes.
    """
    outcomes = episodes.select("trajectory_id", outcome="score")
    rows = with_baseline(steps).drop_nulls("mean_score").join(outcomes, on="trajectory_id")
    score, outcome = (pl.col(name) - pl.col(name).mean().over("task_id") for name in ("mean_score", "outcome"))
    sums = rows.sort("trajectory_id", "step").select(both=-(score * outcome).sum(), own=(score * score).sum())
    both, own = sums.row(0)
    return 0.0 if own < TOLERANCE else min(1.0, max(0.0, both / own))
