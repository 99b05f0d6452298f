"""The estimator that a run names: from its config to the function that computes the policy's advantages."""

from __future__ import annotations

import polars as pl

from rla.config.sections import CreditConfig
from rla.credit import anchor, integrated, outcome, returns, step


def advantages(episodes: pl.DataFrame, steps: pl.DataFrame, config: CreditConfig) -> pl.DataFrame:
    """One row per step of the episodes given; frames as the estimators take them."""
    match config.estimator:
        case "integrated":
            return integrated.advantages(episodes, steps, step_weight=config.step_weight, normalise=config.normalise)
        case "outcome":
            return outcome.advantages(episodes, steps)
        case "step":
            return step.advantages(episodes, steps, normalise=config.normalise)
        case "return":
            return returns.advantages(
                episodes,
                steps,
                step_weight=config.step_weight,
                discount=config.discount,
                outcome_discount=config.outcome_discount,
                normalise=config.normalise,
            )
        case "anchor":
            return anchor.advantages(episodes, steps, discount=config.outcome_discount, weight=config.anchor_weight)
