"""The reward model's reward: a judgement should agree with the outcome and with its fellow judgements.

    R_S_ij = R_i * S_ij,   R_i = O + lambda * mean_j S_ij   (integrated, whatever the policy trains on)
    unparsable judgement:  R_S_ij = -(1 + lambda)

|R_i| is at most 1 + lambda and reaches it only if all votes of the step agree with O, so for lambda > 0
no judgement that parses gets as little as one that does not (lessons apart). Advantages are
standardised over

    step   the judgements of the same step (the paper). This cancels |R_i|, and a unanimous step gives 0.
           A lesson would cancel, too, so it is not standardised: its advantage is R / (1 + lambda).
    task   all judgements of the task: |R_i| counts, unanimous steps train.
    none   nothing: the advantage is the reward.

With the differences D in place of O it is R_i = D + lambda |D| * mean_j S_ij, and only steps with D != 0 train: a
judgement gains by telling the better choice from the worse, not by knowing who will win.

    D_i = win - mean of win over the task's other trajectories that passed the same place     in [-1, 1]

The outcome says little about a single step: most of it was settled by the task, or by earlier steps. The other
trajectories in the same place had the same task and the same choices, so D is the worth of the choice made there, with
the luck of the later steps. If no other trajectory passed, or all of them ended alike, D is 0: nothing is
known about the choice.

R_i nearly always has the sign of O. As long as most steps belong to lost episodes, features common to all steps are
therefore rewarded for -1, until the judge says nothing else. `balanced` scales the advantages so that steps of
won and of lost episodes (lessons: with one label and the other) have the same sum of |advantage|: standardised over the
step, a vote then gains by telling the two apart, which is what mu = p+ + p- measures, and nothing by knowing which is
the more frequent.

Lessons are steps whose judgements are paid for agreeing with fact: R_i = (1 + lambda) L_i, L_i the label that the
environment gives the step (+1 helped, -1 did not). This goes beyond the paper, whose judge learns from outcomes and
from its own votes alone. A lesson counts as much as a step whose outcome all votes agree with; a vote against the label
gets as little as one that does not parse. Which steps are lessons, `rla.rollouts.labels` draws.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from rla.credit.integrated import PLACE, reward
from rla.credit.normalise import RM_REWARDS, TOLERANCE, shaped, standardised

Normalise = Literal["step", "task", "none"]


def rewards(
    judgements: pl.DataFrame,
    policy_rewards: pl.DataFrame,
    accuracy: pl.DataFrame,
    *,
    step_weight: float,
    normalise: Normalise,
    low: float,
    high: float,
    balanced: bool = False,
    differences: pl.DataFrame | None = None,
    lessons: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """One row per judgement of a task whose accuracy lies in [low, high]: columns of `RM_REWARDS`.

    `judgements`: trajectory_id, step, judgement, score (+1, -1 or null where it did not parse).
    `policy_rewards`: trajectory_id, task_id, step, outcome, mean_score; judgements of other steps are left
    out. `accuracy`: task_id, accuracy. A task that is nearly always won or lost has too few steps of the
    other kind to be judged against. `differences`: trajectory_id, step, difference, in place of the outcome. `lessons`:
    trajectory_id, step, label, in place of either.
    """
    trained = accuracy.filter(pl.col("accuracy").is_between(low, high)).select("task_id")
    steps = policy_rewards.select("trajectory_id", "task_id", "step", "outcome", "mean_score")
    integrated = reward(step_weight)
    if differences is not None:
        steps = steps.join(differences, on=["trajectory_id", "step"])
        weight = step_weight * pl.col("difference").abs()
        integrated = pl.col("difference") + weight * pl.col("mean_score").fill_null(0.0)
    if lessons is not None:
        steps = with_lessons(steps, lessons)
    if differences is not None:
        steps = steps.filter(pl.col("difference").abs() > TOLERANCE)
    rows = (
        judgements.select("trajectory_id", "step", "judgement", "score")
        .join(steps.join(trained, on="task_id", how="semi"), on=["trajectory_id", "step"])
        .sort("trajectory_id", "step", "judgement")
        .with_columns((integrated * pl.col("score")).fill_null(-(1.0 + step_weight)).alias("reward"))
        .with_columns(_advantage(normalise).alias("advantage"))
    )
    if lessons is not None and normalise == "step":
        alone = pl.col("reward") / (1.0 + step_weight)
        rows = rows.with_columns(advantage=pl.when("lesson").then(alone).otherwise("advantage"))
    return shaped(rows.with_columns(_balanced("advantage")) if balanced else rows, RM_REWARDS)


def _advantage(normalise: Normalise) -> pl.Expr:
    if normalise == "none":
        return pl.col("reward")
    return standardised("reward", ["trajectory_id", "step"] if normalise == "step" else ["task_id"])


def _balanced(name: str) -> pl.Expr:
    """The column, scaled so that both outcomes have the same sum of absolute values; unchanged if one has none."""
    size, was_won = pl.col(name).abs(), pl.col("outcome") > 0
    won, lost = size.filter(was_won).sum(), size.filter(~was_won).sum()
    scale = (won + lost) / (2 * pl.when(was_won).then(won).otherwise(lost))
    return pl.col(name) * pl.when((won > TOLERANCE) & (lost > TOLERANCE)).then(scale).otherwise(1.0)


def with_lessons(steps: pl.DataFrame, lessons: pl.DataFrame) -> pl.DataFrame:
    """`steps`, in which a lesson's label replaces `outcome` and `mean_score`; the new column `lesson` marks these rows.

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
