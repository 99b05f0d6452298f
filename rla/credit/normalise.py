"""Standardisation inside a group: (x - mean) / standard deviation of the population.

With `spread: sample` it is (x - mean) / (standard deviation with n - 1, plus 1e-6), as GRPO's published codes have it.

A group of one has nothing to be compared with, and a group without spread has no better and worse: both
give 0. Spread below `TOLERANCE` is rounding (1 + 1/3 summed in two orders), not a difference between
rewards.

Rows are sorted before they are summed: a sum depends in its last bits on the order of its terms, and the same
input has to give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

TOLERANCE = 1e-8
EPSILON = 1e-6  # added to the standard deviation of a sample

Spread = Literal["population", "sample"]

POLICY_REWARDS = pl.Schema(
    {
        "trajectory_id": pl.String,
        "task_id": pl.String,
        "step": pl.Int32,
        "outcome": pl.Int8,
        "mean_score": pl.Float64,
        "reward": pl.Float64,
        "advantage": pl.Float64,
    }
)
RM_REWARDS = pl.Schema(
    {
        "trajectory_id": pl.String,
        "task_id": pl.String,
        "step": pl.Int32,
        "judgement": pl.Int32,
        "score": pl.Int8,
        "reward": pl.Float64,
        "advantage": pl.Float64,
    }
)


def standardised(column: str, group: Sequence[str], *, spread: Spread = "population") -> pl.Expr:
    """The column minus its group's mean, over its group's standard deviation; 0 without spread, and alone."""
    value = pl.col(column)
    ddof, epsilon = (1, EPSILON) if spread == "sample" else (0, 0.0)
    deviation = value.std(ddof=ddof).over(group)  # of one value null with n - 1, and null is not above anything
    centred = value - value.mean().over(group)
    return pl.when(deviation > TOLERANCE).then(centred / (deviation + epsilon)).otherwise(0.0)


def centred(column: str, group: Sequence[str]) -> pl.Expr:
    """The column minus its group's mean; 0 for null."""
    return (pl.col(column) - pl.col(column).mean().over(group)).fill_null(0.0)


def with_score(episodes: pl.DataFrame) -> pl.DataFrame:
    """The episodes with the column `score`: that of `rla.credit.shaping`, or else the outcome."""
    if "score" in episodes.columns:
        return episodes
    return episodes.with_columns(score=pl.col("outcome").cast(pl.Float64))


def judged_steps(episodes: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The steps of the episodes given, in key order: mean score, place where there is one, and what is known of the
    episode, its task, outcome and score.
    """
    seen = ["place"] if "place" in steps.columns else []
    return (
        steps.select("trajectory_id", "step", "mean_score", *seen)
        .join(with_score(episodes).select("trajectory_id", "task_id", "outcome", "score"), on="trajectory_id")
        .sort("trajectory_id", "step")
    )


def shaped(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """The schema's columns, in its order and types, rows in key order: same input, same bytes."""
    keys = [name for name in ("trajectory_id", "step", "judgement") if name in schema]
    return frame.select(pl.col(name).cast(kind) for name, kind in schema.items()).sort(keys)
