"""From the `credit` section to the advantages of both models: the policy's by the estimator that it names."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from rla.config.sections import CreditConfig
from rla.credit import anchor, integrated, outcome, step
from rla.credit.consistency import differences
from rla.credit.consistency import rewards as consistency_rewards
from rla.credit.judged import counted_steps, fitted, licensed, paid_steps
from rla.credit.normalise import POLICY_REWARDS, shaped
from rla.credit.shaping import scored_episodes


def policy_advantages(episodes: pl.DataFrame, steps: pl.DataFrame, config: CreditConfig) -> pl.DataFrame:
    """One row per step of the episodes given; frames as the estimators take them, with the score of every episode."""
    spread = config.shaping.spread
    match config.estimator:
        case "integrated":
            return integrated.advantages(
                episodes, steps, step_weight=config.step_weight, normalise=config.normalise, spread=spread
            )
        case "outcome":
            return outcome.advantages(episodes, steps, spread=spread)
        case "step":
            return step.advantages(episodes, steps, normalise=config.normalise, spread=spread)
        case "anchor":
            return anchor.advantages(episodes, steps, spread=spread)


def both_advantages(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    judgements: pl.DataFrame,
    config: CreditConfig,
    lessons: pl.DataFrame | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of `policy_rewards` and of `rm_rewards`, both of `episodes` alone; `config` is `weighed` already.

    The policy's estimators take the shaped score (`credit.shaping`); accuracies and the reward model's rewards are of
    the outcome itself, and of the judgements as they were given. `lessons`: steps that teach the reward model by their
    label (`rla.credit.consistency`).
    """
    own = own_steps(episodes, steps)
    policy = policy_advantages(scored_episodes(episodes, config.shaping), paid_steps(own, config), config)
    accuracy = outcome.accuracies(episodes)
    if config.estimator != "step":  # that one asks nobody who won
        policy = only_mixed(policy, accuracy, config.policy_band)
    given = own.select("trajectory_id", "step", "mean_score")
    policy = shaped(policy.drop("mean_score").join(given, on=["trajectory_id", "step"]), POLICY_REWARDS)
    rm = consistency_rewards(
        judgements,
        policy,
        accuracy,
        step_weight=config.step_weight,
        normalise=config.reward_model_normalise,
        low=config.reward_model_band[0],
        high=config.reward_model_band[1],
        balanced=config.reward_model_balanced,
        differences=differences(episodes, own) if config.reward_model_outcome == "place" else None,
        lessons=lessons,
    )
    return policy, rm


def weighed(config: CreditConfig, episodes: pl.DataFrame, steps: pl.DataFrame) -> CreditConfig:
    """The section with lambda times the share of it that these episodes' judgements license (`credit.reliability`).

    The share is measured on what pays: unanimous votes or changes, where those do. Of a baseline it is the weight of
    least squares, of the tasks that train the policy.
    """
    own = own_steps(episodes, steps)
    if config.judged == "baseline":
        training = mixed_tasks(outcome.accuracies(episodes), config.policy_band)
        scored = scored_episodes(episodes, config.shaping).filter(pl.col("task_id").is_in(training.implode()))
        share = fitted(scored, counted_steps(own_steps(scored, own), config))
    else:
        share = licensed(episodes, paid_steps(own, config), of=config.reliability)
    return replace(config, step_weight=config.step_weight * share)


def own_steps(episodes: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The steps of these episodes."""
    return steps.join(episodes.select("trajectory_id"), on="trajectory_id", how="semi")


def only_mixed(policy: pl.DataFrame, accuracy: pl.DataFrame, band: tuple[float, float]) -> pl.DataFrame:
    """Advantage 0 for tasks outside low < accuracy < high of the band.

    Equal outcomes cancel in the standardisation, and the judge's noise alone, scaled up to unit
    spread, would train the policy.
    """
    kept = pl.col("task_id").is_in(mixed_tasks(accuracy, band).implode())
    return policy.with_columns(advantage=pl.when(kept).then("advantage").otherwise(0.0))


def mixed_tasks(accuracy: pl.DataFrame, band: tuple[float, float]) -> pl.Series:
    """Ids of the tasks with low < accuracy < high of the band."""
    low, high = band
    return accuracy.filter((pl.col("accuracy") > low) & (pl.col("accuracy") < high))["task_id"]
