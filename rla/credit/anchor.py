"""Credit by comparing steps taken in the same place (GiGPO, whose places are identical observations).

    G_i = gamma^(T-1-i) where O = +1, else 0                     what followed the step, discounted
    A_i = A_episode + (G_i - mean G) / std G                     over the task's steps in the same place

A_episode is that of `outcome`, so it counts a shaped score; what followed a step is the win alone. A place that was
seen once, or whose visits all ended alike (no spread), adds 0, and so does every place that only failures reach: their
returns are all 0. Judgements play no part. Two visits of one trajectory are two members: returning to a place is
compared with leaving it for good.
"""

from __future__ import annotations

import polars as pl

from rla.credit import outcome
from rla.credit.normalise import POLICY_REWARDS, Spread, shaped, standardised

DISCOUNT = 0.95  # gamma of the published implementation


def advantages(episodes: pl.DataFrame, steps: pl.DataFrame, *, spread: Spread = "population") -> pl.DataFrame:
    """One row per step of the episodes given: columns of `POLICY_REWARDS`, `reward` being G.

    `episodes`: trajectory_id, task_id, outcome. `steps`: trajectory_id, step, mean_score (passed through), place:
    what the environment says of the state before the policy acted, or what the policy saw then. Source: Feng et al.,
    Group-in-Group Policy Optimization (2025), with a return of 1 for a win; the same standard deviation in both terms.
    """
    episode = outcome.advantages(episodes, steps, spread=spread).rename({"advantage": "of_episode"}).drop("reward")
    seen = steps.select("trajectory_id", "step", "place")
    to_go = pl.col("step").max().over("trajectory_id") - pl.col("step")
    scored = (
        episode.join(seen, on=["trajectory_id", "step"])
        .sort("trajectory_id", "step")
        .with_columns((pl.lit(DISCOUNT).pow(to_go) * (pl.col("outcome") > 0)).alias("reward"))
        .with_columns(standardised("reward", ["task_id", "place"], spread=spread).alias("of_step"))
        .with_columns((pl.col("of_episode") + pl.col("of_step")).alias("advantage"))
    )
    return shaped(scored, POLICY_REWARDS)
