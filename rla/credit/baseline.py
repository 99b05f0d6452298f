"""The judgement of the step before as a baseline: it takes luck out of the outcome and pays for nothing.

    A_i from R_i = O - c S_(i-1)          S_(i-1): mean valid vote of the step before, of the first step the task's mean
    c = sum (O - mean O) (S_(i-1) - mean S) / sum (S_(i-1) - mean S)^2
        over the steps of tasks that train, means within the task
    lambda' = lambda * min(1, max(0, c))

What was judged before an action does not depend on it, so E[grad log pi(a_i) S_(i-1)] = 0: the policy's gradient
points where outcomes alone point it, and a judgement cannot be earned. That holds up to terms of order c / n for n
episodes of a task: the mean and the spread that standardise a task, the first step's S and c itself are of the same
episodes, as the group mean of GRPO is. What a judge is good for is noise: with the correlation r of O and S_(i-1)
within a task, the least-squares weight leaves 1 - r^2 of the variance of O. A judge that knows nothing has c near 0, a
judge that is wrong throughout has a negative one, which counts as 0. Above 1 a judge would be paid for votes against
the outcome (R_i S with R_i = O + lambda' S), so c is at most 1.

Consistency feedback teaches a judge to say +1 where the episode will be won, which is what a baseline should know.
Source: REINFORCE with a baseline (Williams, 1992); control variates.
"""

from __future__ import annotations

import polars as pl

from rla.credit.normalise import TOLERANCE


def taken_off(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps in key order, `mean_score` being -S_(i-1); null in tasks without any vote.

    `steps`: trajectory_id, task_id, step, mean_score. Behind a step without votes it is the last that had some; before
    the first it is the mean of the task's others, so that it says nothing there.
    """
    earlier = pl.col("mean_score").forward_fill().shift(1).over("trajectory_id")
    ordered = steps.sort("trajectory_id", "step").with_columns(mean_score=-earlier.cast(pl.Float64))
    return ordered.with_columns(pl.col("mean_score").fill_null(pl.col("mean_score").mean().over("task_id")))


def fitted(episodes: pl.DataFrame, steps: pl.DataFrame) -> float:
    """min(1, max(0, c)); 0 where the judgements or the outcomes do not differ within any task.

    `episodes`: trajectory_id, task_id, score (what the outcome counts). `steps`: trajectory_id, task_id, step,
    mean_score, of these episodes or more. The votes must be those of a reward model that has not trained on them.
    """
    outcomes = episodes.select("trajectory_id", outcome="score")
    rows = taken_off(steps).drop_nulls("mean_score").join(outcomes, on="trajectory_id").sort("trajectory_id", "step")
    score, outcome = (pl.col(name) - pl.col(name).mean().over("task_id") for name in ("mean_score", "outcome"))
    both, own = rows.select(both=-(score * outcome).sum(), own=(score * score).sum()).row(0)
    return 0.0 if own < TOLERANCE else min(1.0, max(0.0, both / own))
