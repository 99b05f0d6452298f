"""Standardisation inside a group: (x - mean) / standard deviation of the population.

With `spread: sample` it is (x - mean) / (standard deviation with n - 1, plus 1e-6), as in GRPO's published codes.

A group of one has nothing to be compared with, and a group without spread has no better and worse: both give 0. Spread
below `TOLERANCE` is rounding (1 + 1/3 summed in two orders), not a difference between rewards.

Rows are sorted before they are summed: the last bits of a sum depend on the order of its terms, and equal input has to
give equal bytes.
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
    deviation = value.std(ddof=ddof).over(group)  # null for one value with n - 1, and null is not above anything
    centred = value - value.mean().over(group)
    return pl.when(deviation > TOLERANCE).then(centred / (deviation + epsilon)).otherwise(0.0)


def in_schema(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """The columns of the schema, in its order and types, rows in key order."""
    keys = [name for name in ("trajectory_id", "step", "judgement") if name in schema]
    return frame.select(pl.col(name).cast(kind) for name, kind in schema.items()).sort(keys)
