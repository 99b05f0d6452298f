"""The judgement of the step before as a baseline (`credit.judged: baseline`): it reduces noise and pays for nothing.

    A_i from R_i = O - c S_(i-1)          S_(i-1): mean valid vote of the step before; first step: the task's mean
    c = sum (O - mean O) (S_(i-1) - mean S) / sum (S_(i-1) - mean S)^2
        over the steps of tasks that train, means within the task
    lambda' = lambda * min(1, max(0, c))

A judgement made before an action does not depend on it, so E[grad log pi(a_i) S_(i-1)] = 0: the gradient points in the
direction of outcomes alone, and a judgement cannot be earned. That holds up to terms of order c / n for n episodes of a
task, because the mean and the spread of the task, the first step's S, and c come from the same episodes, like the group
mean of GRPO. A good judge reduces noise: with the correlation r of O and S_(i-1) within a task, the least-squares
weight leaves 1 - r^2 of the variance of O. A judge that knows nothing has c near 0, a judge that is always wrong a
negative c, which counts as 0. With c above 1 a judge would be paid for votes against the outcome (R_i S with R_i = O +
lambda' S), so c is at most 1. Source: REINFORCE with a baseline (Williams, 1992); control variates.
"""

from __future__ import annotations

import polars as pl

from rla.credit.normalise import TOLERANCE


def with_baseline(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps in key order; `mean_score` is -S_(i-1), null in tasks without any vote.

    `steps`: trajectory_id, task_id, step, mean_score. After a step without votes, S_(i-1) is the vote of the last step
    that has some; for the first step it is the mean over the task, which says nothing about the episode.
    """
    earlier = pl.col("mean_score").forward_fill().shift(1).over("trajectory_id")
    ordered = steps.sort("trajectory_id", "step").with_columns(mean_score=-earlier.cast(pl.Float64))
    return ordered.with_columns(pl.col("mean_score").fill_null(pl.col("mean_score").mean().over("task_id")))


def baseline_weight(episodes: pl.DataFrame, steps: pl.DataFrame) -> float:
    """min(1, max(0, c)); 0 if no task has different judgements, or different outcomes.

    `episodes`: trajectory_id, task_id, score (of the outcome, perhaps shaped). `steps`: trajectory_id, task_id, step,
    mean_score; steps of other episodes are ignored. The votes must come from a reward model that has not trained on
    these episodes.
    """
    outcomes = episodes.select("trajectory_id", outcome="score")
    rows = with_baseline(steps).drop_nulls("mean_score").join(outcomes, on="trajectory_id")
    score, outcome = (pl.col(name) - pl.col(name).mean().over("task_id") for name in ("mean_score", "outcome"))
    sums = rows.sort("trajectory_id", "step").select(both=-(score * outcome).sum(), own=(score * score).sum())
    both, own = sums.row(0)
    return 0.0 if own < TOLERANCE else min(1.0, max(0.0, both / own))
