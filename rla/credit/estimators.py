"""The estimators of the policy's advantage, one function each; `credit.estimator` names one of them.

    outcome (GRPO)   reward O                              A_O = (O - mean O) / std O over the task's trajectories,
                                                           each counted once whatever its length
    integrated       reward R_i = O + lambda mean_j S_ij   (R_i - mean) / std, over the group of `normalise`
    step             reward mean_j S_ij                    as `integrated`, without asking who won
    anchor (GiGPO)   reward G_i = gamma^(T-1-i) if O = +1, else 0
                                                           A_O + (G_i - mean G) / std G over the task's steps in the
                                                           same place

`normalise` of `integrated` and `step` is the group:

    step    the task's trajectories at the same step index i (the paper)
    task    all steps of the task
    place   A_O + lambda * (S_i - mean S), the mean being over the task's steps in the same place; `step` leaves out A_O

A group of one and a group without spread have advantage 0. An index that only failures reach compares them by their
judgements alone, at unit spread however small lambda is: right if the judge is right, noise otherwise. `task` keeps
the judgements at their weight. Both compare steps of different kinds: if a small policy takes the wrong thing nine
times of ten, every `take` looks bad next to every `go`, and it learns to take nothing. `place` compares the actions
that were taken in the same place of the same task.

Every function takes `episodes` (trajectory_id, task_id, outcome of +1 or -1, and score if the outcome is shaped, which
then counts as O) and `steps` (trajectory_id, step, mean_score in [-1, 1] or null if no judgement is valid; `place` for
comparisons by place), and returns one row per step of these episodes: the columns of `POLICY_REWARDS`. Steps of other
trajectories are left out.

*Standardised* is (x - mean) / standard deviation of the population within the group; with `spread: sample` it is
(x - mean) / (standard deviation with n - 1, plus 1e-6), as in GRPO's published codes. Rows are sorted before they are
summed, because the last bits of a sum depend on the order of its terms, and equal input has to give equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

Normalise = Literal["step", "task", "place"]
Spread = Literal["population", "sample"]
PLACE = ["task_id", "place"]
GROUPS = {"step": ["task_id", "step"], "task": ["task_id"]}
DISCOUNT = 0.95  # gamma of the published implementation of GiGPO
TOLERANCE = 1e-8  # a smaller spread is rounding (1 + 1/3 summed in two orders), not a difference between rewards
EPSILON = 1e-6  # added to the standard deviation of a sample

_STEP = {"trajectory_id": pl.String, "task_id": pl.String, "step": pl.Int32}
_PAID = {"reward": pl.Float64, "advantage": pl.Float64}
POLICY_REWARDS = pl.Schema({**_STEP, "outcome": pl.Int8, "mean_score": pl.Float64, **_PAID})
RM_REWARDS = pl.Schema({**_STEP, "judgement": pl.Int32, "score": pl.Int8, **_PAID})


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


def outcome_advantages(episodes: pl.DataFrame, steps: pl.DataFrame, *, spread: Spread = "population") -> pl.DataFrame:
    """Credit by outcome alone. Source: Shao et al., DeepSeekMath (2024), outcome supervision.

    GRPO's published codes give the only trajectory of a group its own reward as advantage. Here it is 0.
    """
    scored = (
        _with_score(episodes)
        .sort("trajectory_id")
        .select("trajectory_id", "task_id", "outcome", reward=pl.col("score").cast(pl.Float64))
        .with_columns(standardised("reward", ["task_id"], spread=spread).alias("advantage"))
    )
    rows = steps.select("trajectory_id", "step", "mean_score").join(scored, on="trajectory_id")
    return in_schema(rows, POLICY_REWARDS)


def integrated_advantages(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    *,
    step_weight: float,
    normalise: Normalise = "step",
    spread: Spread = "population",
) -> pl.DataFrame:
    """Equation 1 of RLAnything: R_i = O + lambda / m * sum_j S_ij (`integrated_reward`), standardised over the task's
    trajectories at the same step. `step_weight` is lambda.

    If a single trajectory of a task reaches index i, its advantage is 0. The published code takes the raw reward, which
    is not centred, and long trajectories are mostly failures.
    """
    rows = _judged_steps(episodes, steps).with_columns(reward=integrated_reward(step_weight, of="score"))
    if normalise == "place":
        episode = outcome_advantages(episodes, rows, spread=spread)
        rows = rows.join(
            episode.select("trajectory_id", "step", of_episode="advantage"),
            on=["trajectory_id", "step"],
            maintain_order="left",
        )
        compared = pl.col("of_episode") + step_weight * _centred_by_place()
    else:
        compared = standardised("reward", GROUPS[normalise], spread=spread)
    return in_schema(rows.with_columns(compared.alias("advantage")), POLICY_REWARDS)


def integrated_reward(step_weight: float, *, of: str = "outcome") -> pl.Expr:
    """R_i from the column `of`, which holds O, and `mean_score`; O alone if no judgement is valid."""
    return pl.col(of).cast(pl.Float64) + step_weight * pl.col("mean_score").cast(pl.Float64).fill_null(0.0)


def step_advantages(
    episodes: pl.DataFrame, steps: pl.DataFrame, *, normalise: Normalise = "step", spread: Spread = "population"
) -> pl.DataFrame:
    """Credit by the reward model alone. Source: RLAnything, ablation of the outcome reward.

    A step without a valid judgement is not a sample: it counts in no mean, and has reward and advantage 0.
    """
    by_place = normalise == "place"
    compared = _centred_by_place() if by_place else standardised("mean_score", GROUPS[normalise], spread=spread)
    scored = (
        _judged_steps(episodes, steps)
        .with_columns(compared.alias("advantage"))
        .with_columns(reward=pl.col("mean_score").fill_null(0.0), advantage=pl.col("advantage").fill_null(0.0))
    )
    return in_schema(scored, POLICY_REWARDS)


def anchor_advantages(episodes: pl.DataFrame, steps: pl.DataFrame, *, spread: Spread = "population") -> pl.DataFrame:
    """Credit by comparing steps that were taken in the same place. Judgements play no part.

    A_O counts a shaped score; the return G_i of a step is the win alone. A place that was visited once, or whose visits
    all ended alike, adds 0. Two visits of one trajectory are two members: returning to a place is compared with leaving
    it for good. Source: Feng et al., Group-in-Group Policy Optimization (2025), with a return of 1 for a win.
    """
    episode = outcome_advantages(episodes, steps, spread=spread).rename({"advantage": "of_episode"}).drop("reward")
    to_go = pl.col("step").max().over("trajectory_id") - pl.col("step")
    scored = (
        episode.join(steps.select("trajectory_id", "step", "place"), on=["trajectory_id", "step"])
        .sort("trajectory_id", "step")
        .with_columns(reward=pl.lit(DISCOUNT).pow(to_go) * (pl.col("outcome") > 0))
        .with_columns(standardised("reward", PLACE, spread=spread).alias("of_step"))
        .with_columns(advantage=pl.col("of_episode") + pl.col("of_step"))
    )
    return in_schema(scored, POLICY_REWARDS)


def accuracies(episodes: pl.DataFrame) -> pl.DataFrame:
    """Per task the number of `rollouts` and the `accuracy`, the share that was won; rows in order of task_id."""
    return (
        episodes.group_by("task_id")
        .agg(rollouts=pl.len(), accuracy=(pl.col("outcome") > 0).mean().cast(pl.Float64))
        .sort("task_id")
    )


def _centred_by_place() -> pl.Expr:
    """The mean vote minus its mean over the task's steps in the same place; 0 without a vote."""
    return (pl.col("mean_score") - pl.col("mean_score").mean().over(PLACE)).fill_null(0.0)


def _with_score(episodes: pl.DataFrame) -> pl.DataFrame:
    """The episodes with the column `score`, the outcome if nothing else has set it."""
    if "score" in episodes.columns:
        return episodes
    return episodes.with_columns(score=pl.col("outcome").cast(pl.Float64))


def _judged_steps(episodes: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The steps of these episodes in key order, with task, outcome and score of their episode."""
    place = ["place"] if "place" in steps.columns else []
    return (
        steps.select("trajectory_id", "step", "mean_score", *place)
        .join(_with_score(episodes).select("trajectory_id", "task_id", "outcome", "score"), on="trajectory_id")
        .sort("trajectory_id", "step")
    )
