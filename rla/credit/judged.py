"""How far judgements license a weight: the slope of the judgement on the outcome.

    b = sum (S_i - mean S) (O_i - mean O) / sum (O_i - mean O)^2      S_i: mean valid vote of a step, O in {-1, +1}
    lambda' = lambda * max(0, b)

Over all steps (`pooled`) the slope is mu - 1 where every step has equally many votes: half of what lies between the
mean vote of won and of lost episodes is p+ + p- - 1. So a reward model with mu <= 1 weighs nothing, and a perfect one
all of lambda. A vote can follow the outcome because it knows which tasks are easy, or how far an episode has come.
None of that says which action was the better one. `place` takes both means over the steps that were taken in the same
place of the same task, so that it counts only what the votes say of the choice.

Two limits. The slope is of one iteration, and only its positive part is paid, so a reward model that knows nothing is
paid a little on average. And where `normalise` is not `place`, votes of different places are still compared with each
other once they are paid.

The judgements that pay the policy: as they were given, the unanimous ones alone, or what a step changed in them.

    judged: change     S_i - S_(i-1),   S_(-1): the mean of S_0 over the task's trajectories
    judged: baseline   -S_(i-1), which pays for nothing (below)

Consistency feedback teaches a reward model to say +1 where the episode will be won. That is a value of where the step
led, and most of it was there before the step. Paid for values, a policy learns to stay where judgements are kind. Paid
for changes of the value, it gains nothing by going in circles: over an episode the sum is the last value minus the
first, whatever lies between. This is not potential-based shaping (Ng, Harada and Russell, 1999), which leaves the best
policy as it is because the potential of a terminal state is 0. Here the last judgement of an episode stays and pays, so
a policy can still gain by ending where the judge is kind.

The judgement of the step before is a baseline: it takes luck out of the outcome and pays for nothing.

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

from typing import Literal

import polars as pl

from rla.config.sections import CreditConfig
from rla.credit.normalise import TOLERANCE

Reliability = Literal["none", "pooled", "place"]
PLACE = ["task_id", "place"]


def licensed(episodes: pl.DataFrame, steps: pl.DataFrame, *, of: Reliability) -> float:
    """The share of lambda in [0, 1] that the judgements have earned; 1 for `none`, 0 where nothing can be compared.

    `episodes`: trajectory_id, task_id, outcome (+1 or -1). `steps`: trajectory_id, step, mean_score: what is paid for
    each step, in [-1, 1], of changes in [-2, 2] (null: nothing), for `place` also place. The votes must be those of a
    reward model that has not trained on these episodes.
    """
    if of == "none":
        return 1.0
    slope = outcome_slope(episodes, steps, within=PLACE if of == "place" else [])
    return 0.0 if slope is None else min(1.0, max(0.0, slope))


def outcome_slope(episodes: pl.DataFrame, steps: pl.DataFrame, *, within: list[str]) -> float | None:
    """b of the module, with the means over `within` (empty: over all steps); null where the outcomes do not differ."""
    rows = (
        steps.drop_nulls("mean_score")
        .select("trajectory_id", "step", pl.col("mean_score").cast(pl.Float64), *[c for c in within if c == "place"])
        .join(episodes.select("trajectory_id", "task_id", pl.col("outcome").cast(pl.Float64)), on="trajectory_id")
        .sort("trajectory_id", "step")
    )
    score, outcome = (_minus_mean(name, within) for name in ("mean_score", "outcome"))
    both, own = rows.select(both=(score * outcome).sum(), own=(outcome * outcome).sum()).row(0)
    return None if own < TOLERANCE else both / own


def _minus_mean(name: str, within: list[str]) -> pl.Expr:
    mean = pl.col(name).mean()
    return pl.col(name) - (mean.over(within) if within else mean)


def paid_steps(steps: pl.DataFrame, config: CreditConfig) -> pl.DataFrame:
    """The steps with `mean_score` as `credit.votes` and `credit.judged` want it, null where there is none.

    `steps`: trajectory_id, task_id, step, mean_score. With `votes: unanimous` a step whose valid votes differ counts as
    one without votes. With `judged: change` a step without votes has none, and the next is compared with the last
    that had some.
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
    """The steps in key order, `mean_score` being what each changed."""
    ordered = steps.sort("trajectory_id", "step")
    first = pl.col("mean_score").filter(pl.col("step") == 0).mean().over("task_id").fill_null(0.0)
    before = pl.col("mean_score").forward_fill().shift(1).over("trajectory_id").fill_null(first)
    return ordered.with_columns(mean_score=pl.col("mean_score") - before)


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
