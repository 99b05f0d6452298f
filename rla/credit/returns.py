"""The integrated reward with what follows a step counted in: discounted return-to-go.

    R_i = gamma_O^(T-1-i) O + lambda * sum over k >= i of gamma^(k-i) * mean_j S_kj     T: the trajectory's steps
    A_i = (R_i - mean) / std, over the same groups as `integrated`

gamma = 0 and gamma_O = 1 is `integrated` itself; gamma = 0 with gamma_O < 1 discounts the outcome alone: of two wins
the shorter one is worth more. A step without a valid judgement adds 0. Groups of one and without spread give 0.
"""

from __future__ import annotations

import polars as pl

from rla.credit.integrated import GROUPS, Normalise
from rla.credit.normalise import POLICY_REWARDS, judged_steps, shaped, standardised


def to_go(gamma: float) -> pl.Expr:
    """gamma^(T-1-i) on frames sorted by step, per trajectory. 0^0 is 1: the last step keeps the whole outcome."""
    last = pl.col("step").max().over("trajectory_id")
    return pl.lit(gamma).pow(last - pl.col("step"))


def advantages(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    *,
    step_weight: float,
    discount: float,
    outcome_discount: float = 1.0,
    normalise: Normalise = "step",
) -> pl.DataFrame:
    """One row per step of the episodes given: columns of `POLICY_REWARDS`; frames as for `integrated`.

    `discount` is gamma, `outcome_discount` gamma_O, both in [0, 1]. `steps` holds every step that was played.
    """
    scored = judged_steps(episodes, steps).with_columns(pl.col("mean_score").fill_null(0.0).alias("score"))
    later = scored.select("trajectory_id", pl.col("step").alias("later"), pl.col("score").alias("later_score"))
    weight = pl.lit(discount).pow(pl.col("later") - pl.col("step"))
    following = (
        scored.select("trajectory_id", "step")
        .join(later, on="trajectory_id")
        .filter(pl.col("later") >= pl.col("step"))
        .sort("trajectory_id", "step", "later")
        .group_by("trajectory_id", "step", maintain_order=True)
        .agg((weight * pl.col("later_score")).sum().alias("following"))
    )
    rows = (
        scored.join(following, on=["trajectory_id", "step"], how="left", maintain_order="left")
        .with_columns((to_go(outcome_discount) * pl.col("outcome") + step_weight * pl.col("following")).alias("reward"))
        .with_columns(standardised("reward", GROUPS[normalise]).alias("advantage"))
    )
    return shaped(rows, POLICY_REWARDS)
