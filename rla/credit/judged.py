"""The worth of a vote: which judgements count, what pays the policy for a step, and with what share of lambda.

    judged: step       S_i, the mean valid vote of the step
    judged: change     S_i - S_(i-1),   S_(-1): the mean of S_0 over the task's trajectories
    judged: baseline   -S_(i-1), which pays for nothing

**Changes.** Consistency feedback teaches a reward model to say +1 if the episode will be won. Such a vote is the value
of the state to which the step led, and most of that value was there before the step. A policy that is paid for values
learns to stay where judgements are kind. If it is paid for changes of the value, going in circles gains nothing: over
an episode the sum is the last value minus the first. This is not potential-based shaping (Ng, Harada and Russell,
1999), which keeps the best policy because the potential of a terminal state is 0. Here the last judgement of an episode
pays, so a policy can still gain by ending where the judge is kind.

**Baseline.** The judgement of the step before takes luck out of the outcome and pays for nothing:

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

**Reliability.** The share of lambda that steps and changes have earned is the slope of the judgement on the outcome:

    b = sum (S_i - mean S) (O_i - mean O) / sum (O_i - mean O)^2      S_i: mean valid vote of a step, O in {-1, +1}
    lambda' = lambda * max(0, b)

Over all steps (`pooled`) the slope is mu - 1 if every step has equally many votes: half the difference between the mean
votes of won and of lost episodes is p+ + p- - 1. So a reward model with mu <= 1 weighs nothing, and a perfect one all
of lambda. A vote can follow the outcome because it knows which tasks are easy, or how far an episode has come, neither
of which says which action was better. `place` takes both means over the steps taken in the same place of the same task,
so that only the votes' opinion of the choice counts. Two limits: the slope is measured on one iteration, and only its
positive part is paid, so a reward model that knows nothing is paid a little on average; and unless `normalise` is
`place`, votes of different places are still compared with each other once they are paid.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from rla.config.sections import CreditConfig
from rla.credit.integrated import PLACE
from rla.credit.normalise import TOLERANCE

Reliability = Literal["none", "pooled", "place"]


def licensed(episodes: pl.DataFrame, steps: pl.DataFrame, *, of: Reliability) -> float:
    """b, cut to [0, 1]: the share of lambda that the judgements have earned. 1 for `none`, 0 if no outcomes differ.

    `episodes`: trajectory_id, task_id, outcome (+1 or -1). `steps`: trajectory_id, step, mean_score (the pay of a step,
    in [-1, 1], of changes in [-2, 2], nullable), for `place` also place. The votes must come from a reward model that
    has not trained on these episodes.
    """
    if of == "none":
        return 1.0
    places = ["place"] if of == "place" else []
    rows = (
        steps.drop_nulls("mean_score")
        .select("trajectory_id", "step", pl.col("mean_score").cast(pl.Float64), *places)
        .join(episodes.select("trajectory_id", "task_id", pl.col("outcome").cast(pl.Float64)), on="trajectory_id")
        .sort("trajectory_id", "step")
    )
    means = {name: pl.col(name).mean() for name in ("mean_score", "outcome")}
    score, outcome = (pl.col(name) - (mean.over(PLACE) if places else mean) for name, mean in means.items())
    both, own = rows.select(both=(score * outcome).sum(), own=(outcome * outcome).sum()).row(0)
    return 0.0 if own < TOLERANCE else min(1.0, max(0.0, both / own))


def paid_steps(steps: pl.DataFrame, config: CreditConfig) -> pl.DataFrame:
    """The steps with the `mean_score` that `credit.votes` and `credit.judged` ask for, nullable.

    `steps`: trajectory_id, task_id, step, mean_score. With `votes: unanimous` a step whose valid votes differ counts as
    a step without votes. With `judged: change` a step without votes has no change, and the next step is compared with
    the last one that had votes.
    """
    counted = counted_steps(steps, config)
    match config.judged:
        case "step":
            return counted
        case "change":
            return changes(counted)
        case "baseline":
            return taken_off(counted)


def counted_steps(steps: pl.DataFrame, config: CreditConfig) -> pl.DataFrame:
    """The steps, without the judgements that `credit.votes` leaves out."""
    if config.votes == "all":
        return steps
    agreed = pl.col("mean_score").abs() > 1 - TOLERANCE
    return steps.with_columns(mean_score=pl.when(agreed).then("mean_score"))


def changes(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps in key order; `mean_score` is the change that each made."""
    ordered = steps.sort("trajectory_id", "step")
    first = pl.col("mean_score").filter(pl.col("step") == 0).mean().over("task_id").fill_null(0.0)
    before = pl.col("mean_score").forward_fill().shift(1).over("trajectory_id").fill_null(first)
    return ordered.with_columns(mean_score=pl.col("mean_score") - before)


def taken_off(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps in key order; `mean_score` is -S_(i-1), null in tasks without any vote.

    `steps`: trajectory_id, task_id, step, mean_score. After a step without votes, S_(i-1) is that of the last step with
    votes; for the first step it is the mean over the task, which says nothing about the episode.
    """
    earlier = pl.col("mean_score").forward_fill().shift(1).over("trajectory_id")
    ordered = steps.sort("trajectory_id", "step").with_columns(mean_score=-earlier.cast(pl.Float64))
    return ordered.with_columns(pl.col("mean_score").fill_null(pl.col("mean_score").mean().over("task_id")))


def fitted(episodes: pl.DataFrame, steps: pl.DataFrame) -> float:
    """min(1, max(0, c)); 0 if no task has different judgements, or different outcomes.

    `episodes`: trajectory_id, task_id, score (of the outcome, perhaps shaped). `steps`: trajectory_id, task_id, step,
    mean_score; steps of other episodes are ignored. The votes must come from a reward model that has not trained on
    these episodes.
    """
    outcomes = episodes.select("trajectory_id", outcome="score")
    rows = taken_off(steps).drop_nulls("mean_score").join(outcomes, on="trajectory_id").sort("trajectory_id", "step")
    score, outcome = (pl.col(name) - pl.col(name).mean().over("task_id") for name in ("mean_score", "outcome"))
    both, own = rows.select(both=-(score * outcome).sum(), own=(score * score).sum()).row(0)
    return 0.0 if own < TOLERANCE else min(1.0, max(0.0, both / own))
