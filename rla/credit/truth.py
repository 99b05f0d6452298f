"""Lessons from the environment itself: steps whose judgements are paid for agreeing with fact, not with the outcome.

    R_i = (1 + lambda) L_i,   L_i the label that the environment gives the step (+1 helped, -1 did not)

This goes beyond the paper, whose judge learns from outcomes and from its own votes alone. A lesson counts as much as a
step whose outcome all votes agree with; a vote against the label gets as little as one that does not parse. Which steps
are lessons, `rla.rollouts.labels` draws.
"""

from __future__ import annotations

import polars as pl


def with_lessons(steps: pl.DataFrame, lessons: pl.DataFrame) -> pl.DataFrame:
    """`steps` with the label of `lessons` as a step's `outcome`, and as what all its votes say (`mean_score`). A column
    `lesson` says where that is so.

    `steps`: trajectory_id, step, outcome, mean_score and perhaps difference, which the label takes the place of, too.
    `lessons`: trajectory_id, step, label. Lessons of other steps are left out.
    """
    replaced = [name for name in ("outcome", "mean_score", "difference") if name in steps.columns]
    return (
        steps.join(lessons, on=["trajectory_id", "step"], how="left")
        .with_columns(lesson=pl.col("label").is_not_null())
        .with_columns(pl.coalesce("label", pl.col(name).cast(pl.Float64)).alias(name) for name in replaced)
        .drop("label")
    )
