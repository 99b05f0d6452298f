"""The reward model's reward: a judgement should agree with the outcome and with its fellow judgements.

    R_S_ij = R_i * S_ij,   R_i = O + lambda * mean_j S_ij   (integrated, whatever the policy trains on)
    unparsable judgement:  R_S_ij = -(1 + lambda)

|R_i| is at most 1 + lambda and reaches it only if all votes of the step agree with O, so for lambda > 0 no judgement
that parses gets as little as one that does not. Advantages are standardised over

    step   the judgements of the same step (the paper). This cancels |R_i|, and a unanimous step gives 0.
    task   all judgements of the task: |R_i| counts, unanimous steps train.
    none   nothing: the advantage is the reward.

R_i nearly always has the sign of O. As long as most steps belong to lost episodes, features that all steps share are
therefore rewarded for -1, until the judge says nothing else. `balanced` scales the advantages so that steps of won and
of lost episodes have the same sum of |advantage|: standardised over the step, a vote then gains by telling the two
apart, which mu = p+ + p- measures, and nothing by knowing which is the more frequent.
"""

from __future__ import annotations

import polars as pl

from rla.config.sections import CreditConfig
from rla.credit.estimators import RM_REWARDS, TOLERANCE, in_schema, integrated_reward, standardised

GROUPS = {"step": ["trajectory_id", "step"], "task": ["task_id"], "none": None}


def rewards(
    judgements: pl.DataFrame, policy_rewards: pl.DataFrame, accuracy: pl.DataFrame, config: CreditConfig
) -> pl.DataFrame:
    """One row per judgement of a task whose accuracy lies in the band, bounds included: columns of `RM_REWARDS`.

    `judgements`: trajectory_id, step, judgement, score (+1, -1, or null if it did not parse). `policy_rewards`:
    trajectory_id, task_id, step, outcome, mean_score; judgements of other steps are left out. `accuracy`: task_id,
    accuracy. A task that is nearly always won or lost has too few steps of the other kind to be judged against.
    """
    trained = accuracy.filter(pl.col("accuracy").is_between(*config.reward_model_band)).select("task_id")
    steps = policy_rewards.select("trajectory_id", "task_id", "step", "outcome", "mean_score")
    group, paid = GROUPS[config.reward_model_normalise], integrated_reward(config.step_weight)
    advantage = pl.col("reward") if group is None else standardised("reward", group)
    rows = (
        judgements.select("trajectory_id", "step", "judgement", "score")
        .join(steps.join(trained, on="task_id", how="semi"), on=["trajectory_id", "step"])
        .sort("trajectory_id", "step", "judgement")
        .with_columns(reward=(paid * pl.col("score")).fill_null(-(1.0 + config.step_weight)))
        .with_columns(advantage.alias("advantage"))
    )
    if config.reward_model_balanced:
        size, was_won = pl.col("advantage").abs(), pl.col("outcome") > 0
        won, lost = size.filter(was_won).sum(), size.filter(~was_won).sum()
        scale = (won + lost) / (2 * pl.when(was_won).then(won).otherwise(lost))
        both = (won > TOLERANCE) & (lost > TOLERANCE)  # nothing to balance if one of them has no advantage
        rows = rows.with_columns(advantage=pl.col("advantage") * pl.when(both).then(scale).otherwise(1.0))
    return in_schema(rows, RM_REWARDS)
