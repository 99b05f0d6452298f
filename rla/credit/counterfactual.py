"""What a step's outcome says beside the outcomes of the others that stood in the same place.

    D_i = win - mean of win over the task's other trajectories that passed the same place     in [-1, 1]

The outcome itself says little of a single step: most of it was settled by the task, or by what had been done before.
Who stood in the same place had the same task and could choose the same, so D says what the choice made there was worth,
with the luck of what followed, and with what a place does not tell of the past. Where no other trajectory passed, or
all of them ended alike, D is 0: nothing is known of the choice. The sign of D is that of the outcome, or 0.
"""

from __future__ import annotations

import polars as pl

from rla.credit.reliability import PLACE


def differences(episodes: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """One row per step of the episodes given, in key order: trajectory_id, step, difference.

    `episodes`: trajectory_id, task_id, outcome (+1 or -1). `steps`: trajectory_id, step, place. A trajectory that
    passed a place several times counts once there, and every time has the same difference.
    """
    wins = episodes.select("trajectory_id", "task_id", win=(pl.col("outcome") > 0).cast(pl.Float64))
    rows = steps.select("trajectory_id", "step", "place").join(wins, on="trajectory_id")
    passed = rows.unique(["trajectory_id", "place"]).group_by(PLACE).agg(n=pl.len(), won=pl.col("win").sum())
    others = (pl.col("won") - pl.col("win")) / (pl.col("n") - 1)
    return (
        rows.join(passed, on=PLACE)
        .select(
            "trajectory_id",
            "step",
            difference=pl.when(pl.col("n") > 1).then(pl.col("win") - others).otherwise(0.0),
        )
        .sort("trajectory_id", "step")
    )
