"""The integrated reward of a step: outcome and judgements together.

    R_i = O + lambda * mean_j S_ij     mean over the valid judgements; none valid: R_i = O
    A_i = (R_i - mean) / std           over the trajectories of the same task that have a step i  (`step`, the paper)
                                       over all steps of the task                                 (`task`)
    A_i = A_O + lambda * (S_i - mean S)    A_O as in `outcome`; mean over the task's steps in the same place   (`place`)

If only one trajectory of a task reaches index i, its advantage is 0: the raw reward would not be centred, and long
trajectories are mostly failures. An index that only failures reach compares them by their judgements alone, at unit
spread however small lambda is: right if the judge is right, noise otherwise. `task` keeps the judgements at their
weight. Both compare steps of different kinds: if a small policy takes the wrong thing nine times of ten, every `take`
looks bad next to every `go`, and it learns to take nothing. `place` compares the actions taken in the same place of the
same task; a place that was seen once adds nothing, and no spread is scaled up to one.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from rla.credit import outcome
from rla.credit.normalise import POLICY_REWARDS, Spread, centred, judged_steps, shaped, standardised

Normalise = Literal["step", "task", "place"]
PLACE = ["task_id", "place"]
GROUPS = {"step": ["task_id", "step"], "task": ["task_id"]}


def reward(step_weight: float, *, of: str = "outcome") -> pl.Expr:
    """R_i from the columns `of`, which is O, and `mean_score` (null: no valid judgement)."""
    return pl.col(of).cast(pl.Float64) + step_weight * pl.col("mean_score").cast(pl.Float64).fill_null(0.0)


def advantages(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    *,
    step_weight: float,
    normalise: Normalise = "step",
    spread: Spread = "population",
) -> pl.DataFrame:
    """One row per step of the episodes given: columns of `POLICY_REWARDS`. `step_weight` is lambda.

    `episodes`: trajectory_id, task_id, outcome (+1 or -1), where it is shaped score, which is O then. `steps`:
    trajectory_id, step, mean_score in [-1, 1], nullable; for `place` also place, which `rla.store.frames` makes of what
    the environment says of the state, or of what was observed. Steps of trajectories that are not among the episodes
    are left out. Source: RLAnything, integrated feedback; the published code takes the raw reward for a group of one,
    this does not.
    """
    rows = judged_steps(episodes, steps).with_columns(reward(step_weight, of="score").alias("reward"))
    if normalise == "place":
        whole = outcome.advantages(episodes, rows, spread=spread)
        of_episode = whole.select("trajectory_id", "step", of_episode="advantage")
        compared = pl.col("of_episode") + step_weight * centred("mean_score", PLACE)
        placed = rows.join(of_episode, on=["trajectory_id", "step"], maintain_order="left")
        return shaped(placed.with_columns(compared.alias("advantage")), POLICY_REWARDS)
    compared = standardised("reward", GROUPS[normalise], spread=spread)
    return shaped(rows.with_columns(compared.alias("advantage")), POLICY_REWARDS)
