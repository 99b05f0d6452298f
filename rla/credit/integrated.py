"""The integrated reward of a step: outcome and judgements together.

    R_i = O + lambda * mean_j S_ij     mean over the valid judgements; none valid: R_i = O
    A_i = (R_i - mean) / std           over the trajectories of the same task that have a step i  (`step`, the paper)
                                       over all steps of the task                                 (`task`)

Where only one trajectory of a task reaches index i, its advantage is 0: the raw reward would not be
centred, and long trajectories are mostly failures. An index that only failures reach compares them by their
judgements alone, at unit spread however small lambda is: right where the judge is, noise where it is not. `task`
keeps the judgements at their weight.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from rla.credit.normalise import POLICY_REWARDS, judged_steps, shaped, standardised

Normalise = Literal["step", "task"]
GROUPS = {"step": ["task_id", "step"], "task": ["task_id"]}


def reward(step_weight: float) -> pl.Expr:
    """R_i from the columns `outcome` and `mean_score` (null: no valid judgement)."""
    return pl.col("outcome").cast(pl.Float64) + step_weight * pl.col("mean_score").cast(pl.Float64).fill_null(0.0)


def advantages(
    episodes: pl.DataFrame, steps: pl.DataFrame, *, step_weight: float, normalise: Normalise = "step"
) -> pl.DataFrame:
    """One row per step of the episodes given: columns of `POLICY_REWARDS`. `step_weight` is lambda.

    `episodes`: trajectory_id, task_id, outcome (+1 or -1). `steps`: trajectory_id, step, mean_score in [-1,
    1], nullable. Steps of trajectories that are not among the episodes are left out. Source: RLAnything,
    integrated feedback; the published code takes the raw reward for a group of one, this does not.
    """
    scored = (
        judged_steps(episodes, steps)
        .with_columns(reward(step_weight).alias("reward"))
        .with_columns(standardised("reward", GROUPS[normalise]).alias("advantage"))
    )
    return shaped(scored, POLICY_REWARDS)
