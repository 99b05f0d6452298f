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
"""

from __future__ import annotations

from typing import Literal

import polars as pl

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
