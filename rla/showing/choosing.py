"""Which steps and episodes are worth a look.

    worst      steps on which most votes are against fact, those that moved the policy most first
    best       the same of the steps on which every vote is right
    disputed   steps whose votes are split, the most evenly split first
    flipped    tasks that were won and are lost later

Fact is the label of the environment's solver. Votes that could not be read do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

Choice = Literal["worst", "best", "disputed"]
STEP = ("trajectory_id", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A step, and why."""

    trajectory_id: str
    step: int
    why: str


def step_table(votes: pl.DataFrame, *, labels: pl.DataFrame, paid: pl.DataFrame) -> pl.DataFrame:
    """One row for each step with a valid vote: trajectory_id, step, votes, mean (of the votes), label, advantage.

    `votes`: trajectory_id, step, score (+1, -1, null). `labels`: trajectory_id, step, label; `paid`: trajectory_id,
    step, advantage. What is not known of a step is null.
    """
    return (
        votes.drop_nulls("score")
        .group_by(*STEP)
        .agg(votes=pl.len(), mean=pl.col("score").cast(pl.Float64).mean())
        .join(labels.select(*STEP, "label"), on=STEP, how="left")
        .join(paid.select(*STEP, "advantage"), on=STEP, how="left")
    )


def choose_steps(table: pl.DataFrame, choice: Choice, count: int) -> list[Chosen]:
    """At most `count` steps of a `step_table`. Equal ones are in order of episode and step."""
    weight = pl.col("advantage").abs().fill_null(0.0)
    wrong = (1 - pl.col("mean") * pl.col("label")) / 2  # share of the votes that are against fact
    match choice:
        case "worst":
            known = table.drop_nulls("label").with_columns(rank=wrong).filter(pl.col("rank") > 0)
            best = known.sort(-pl.col("rank"), -weight, *STEP)
        case "best":
            known = table.drop_nulls("label").with_columns(rank=wrong).filter(pl.col("rank") == 0)
            best = known.sort(-pl.col("votes").cast(pl.Int64), -weight, *STEP)
        case "disputed":
            split = table.filter(pl.col("mean").abs() < 1)
            best = split.sort(pl.col("mean").abs(), -weight, *STEP)
    return [
        Chosen(trajectory_id=row["trajectory_id"], step=row["step"], why=reason(row, choice))
        for row in best.head(count).iter_rows(named=True)
    ]


def reason(row: dict[str, float], choice: Choice) -> str:
    """One line on a row of a `step_table`."""
    votes = int(row["votes"])
    good = round((1 + row["mean"]) / 2 * votes)
    said = f"{good} of {votes} votes call the step good"
    if choice == "disputed":
        return said
    return f"{said}, and it {'helped' if row['label'] > 0 else 'did not help'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flipped:
    """A task, the share of its episodes that were won before and after, an episode that was won before and one that was
    lost after.
    """

    task_id: str
    before: float
    after: float
    won: str
    lost: str


def flipped_tasks(before: pl.DataFrame, after: pl.DataFrame) -> list[Flipped]:
    """The tasks of both whose share of won episodes fell. Both: trajectory_id, task_id, rollout, outcome (+1, -1)."""
    sides = []
    for frame, sign, name in ((before, 1, "won"), (after, -1, "lost")):
        example = pl.col("trajectory_id").filter(pl.col("outcome") == sign).first()
        share = (pl.col("outcome") > 0).mean()
        ordered = frame.sort("rollout", "trajectory_id").group_by("task_id")
        sides.append(ordered.agg(share.alias(f"{name}_share"), example.alias(name)))
    both = sides[0].join(sides[1], on="task_id").drop_nulls()
    return [
        Flipped(
            task_id=row["task_id"], before=row["won_share"], after=row["lost_share"], won=row["won"], lost=row["lost"]
        )
        for row in both.filter(pl.col("won_share") > pl.col("lost_share")).iter_rows(named=True)
    ]
