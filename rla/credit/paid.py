"""The judgements that pay the policy: as they were given, the unanimous ones alone, or what a step changed in them.

    judged: change     S_i - S_(i-1),   S_(-1): the mean of S_0 over the task's trajectories
    judged: baseline   -S_(i-1), which pays for nothing (`rla.credit.baseline`)

Consistency feedback teaches a reward model to say +1 where the episode will be won. That is a value of where the step
led, and most of it was there before the step. Paid for values, a policy learns to stay where judgements are kind. Paid
for changes of the value, it gains nothing by going in circles: over an episode the sum is the last value minus the
first, whatever lies between. This is not potential-based shaping (Ng, Harada and Russell, 1999), which leaves the best
policy as it is because the potential of a terminal state is 0. Here the last judgement of an episode stays and pays, so
a policy can still gain by ending where the judge is kind.
"""

from __future__ import annotations

import polars as pl

from rla.config.sections import CreditConfig
from rla.credit.baseline import taken_off
from rla.credit.normalise import TOLERANCE


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
