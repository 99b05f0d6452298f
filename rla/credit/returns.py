"""The integrated reward with what follows a step counted in: discounted return-to-go.

    R_i = gamma_O^(T-1-i) O + lambda * sum over k >= i of gamma^(k-i) * mean_j S_kj     T: the trajectory's steps
    A_i = (R_i - mean) / std                     over the same groups as `integrated` (`step`, `task`)
    A_i = gamma_O^(T-1-i) A_O + lambda * (G_i - mean G)    G_i: the sum above; A_O as in `outcome`; mean over the
                                                           task's steps in the same place (`place`)

With `place` the discount fades the trajectory's comparison with its task towards its start and never turns its sign: of
two wins beside a loss the shorter one earns more a step, and where all were won the outcome tells nothing (`anchor`
compares those). A place that was seen once adds nothing of the judgements, nor does a step that no valid judgement
follows.

gamma = 0 and gamma_O = 1 is `integrated` itself; gamma = 0 with gamma_O < 1 discounts the outcome alone: of two wins
the shorter one is worth more. A step without a valid judgement adds 0. Groups of one and without spread give 0.
"""

from __future__ import annotations

import polars as pl

from rla.credit.integrated import GROUPS, Normalise, by_place
from rla.credit.normalise import POLICY_REWARDS, Spread, judged_steps, shaped, standardised


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
    spread: Spread = "population",
) -> pl.DataFrame:
    """One row per step of the episodes given: columns of `POLICY_REWARDS`; frames as for `integrated`.

    `discount` is gamma, `outcome_discount` gamma_O, both in [0, 1]. `steps` holds every step that was played, for
    `place` with its place.
    """
    scored = judged_steps(episodes, steps)
    of_outcome = to_go(outcome_discount) * pl.col("score")
    of_judgements = step_weight * pl.col("following").fill_null(0.0)
    rows = scored.join(
        judgements_to_go(scored, discount), on=["trajectory_id", "step"], how="left", maintain_order="left"
    ).with_columns((of_outcome + of_judgements).alias("reward"))
    if normalise == "place":
        fade = to_go(outcome_discount)
        placed = by_place(rows, episodes, judged="following", step_weight=step_weight, spread=spread, fade=fade)
        return shaped(placed, POLICY_REWARDS)
    compared = standardised("reward", GROUPS[normalise], spread=spread)
    return shaped(rows.with_columns(compared.alias("advantage")), POLICY_REWARDS)


def judgements_to_go(scored: pl.DataFrame, discount: float) -> pl.DataFrame:
    """Per step `following`, the discounted sum of the mean scores from it on; null if none of them counts."""
    later = scored.select("trajectory_id", later="step", later_score=pl.col("mean_score").cast(pl.Float64))
    weight = pl.lit(discount).pow(pl.col("later") - pl.col("step"))
    counts = (pl.col("later_score").is_not_null() & (weight > 0)).any()
    return (
        scored.select("trajectory_id", "step")
        .join(later, on="trajectory_id")
        .filter(pl.col("later") >= pl.col("step"))
        .sort("trajectory_id", "step", "later")
        .group_by("trajectory_id", "step", maintain_order=True)
        .agg(following=pl.when(counts).then((weight * pl.col("later_score")).sum()))
    )
