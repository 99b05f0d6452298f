"""Figures of an iteration's episodes and judgements, about the policy and about the reward model.

    p+ = P(S = +1 | success),  p- = P(S = -1 | failure)      over valid votes, all steps pooled
    mu = p+ + p-                                             the reward model is informative iff mu > 1
    bound = 1 - exp(-m (mu - 1)^2 / 4) for mu > 1, else 0    at most the ordering accuracy; m: valid
                                                             votes a step, mean over judged steps
    outcome accuracy = P(sign(mean over steps of the mean score) = O)         a tie counts one half
    self-agreement   = P(two different valid votes on one step are equal)     mean over steps with two or more

    importance ratio = max(a, 1 - a) / min(a, 1 - a)         of a task's accuracy a, 0 < a < 1; 1 at a = 1/2

Success and failure are sampled with weights a and 1 - a, so the ratio has no bound on a one-sided task (a of 0 or 1):
it is null there, and such tasks are counted by share.

The interval of success takes the task as the unit. `rla.metrics.process` compares the votes with fact. A quantity
without data is null. Source: RLAnything, Theorem 1 and the discussion of task difficulty.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Any

import polars as pl

from rla.credit.estimators import accuracies
from rla.metrics.intervals import success_interval
from rla.metrics.process import Metrics, accuracy_by_task, coverage, mean_of, process_metrics
from rla.store.records import Status


def iteration_metrics(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    judgements: pl.DataFrame,
    labels: pl.DataFrame,
    *,
    unlabelled: int,
    played: Mapping[str, int],
    decided: Mapping[str, Any],
) -> dict[str, Any]:
    """All metrics of an iteration; frames as for `diagnostics` and `process_metrics`.

    `unlabelled`: episodes without labels of steps. `played` and `decided`: the counts in the manifests of the
    trajectories and of the verdicts.
    """
    count = max(played["steps"], 1)
    return {
        **diagnostics(episodes, judgements, steps),
        **process_metrics(episodes, judgements, labels),
        "unlabelled_episodes": unlabelled,
        "invalid_actions": played["invalid_actions"] / count,
        "truncated": played["truncated"] / count,
        "context_stops": played["context_stops"],
        "errors": played["env_errors"],
        **decided,
    }


def diagnostics(episodes: pl.DataFrame, judgements: pl.DataFrame, steps: pl.DataFrame) -> Metrics:
    """The figures above as flat numbers, named as in an iteration's metrics file.

    `episodes`: trajectory_id, task_id, status, outcome, n_steps. `judgements`: trajectory_id, step, score (+1, -1,
    null). `steps`: trajectory_id, step, mean_score. Success counts active tasks; the reward model is measured on all
    episodes given, including episodes of pending tasks.
    """
    active = episodes.filter(pl.col("status") == Status.ACTIVE.value)
    interval = success_interval(active.select("task_id", pl.col("outcome") > 0).iter_rows())
    return {
        "episodes": active.height,
        "success": interval.estimate if interval else None,
        "success_low": interval.low if interval else None,
        "success_high": interval.high if interval else None,
        "mean_steps": mean_of(active, pl.col("n_steps").cast(pl.Float64)),
        **judge_metrics(episodes, judgements, steps),
        **balance(episodes),
    }


def judge_metrics(episodes: pl.DataFrame, judgements: pl.DataFrame, steps: pl.DataFrame) -> Metrics:
    """The figures of the reward model that need votes and outcomes alone; arguments as for `diagnostics`."""
    votes = judgements.join(episodes.select("trajectory_id", "outcome"), on="trajectory_id")
    valid = votes.drop_nulls("score")
    p_plus = mean_of(valid.filter(pl.col("outcome") > 0), pl.col("score") > 0)
    p_minus = mean_of(valid.filter(pl.col("outcome") < 0), pl.col("score") < 0)
    mu = None if p_plus is None or p_minus is None else p_plus + p_minus
    # A reply that does not parse is not one of the m votes, and a step that only has such replies has none.
    valid_votes = votes.group_by("trajectory_id", "step").agg(valid=pl.col("score").count())
    per_step = mean_of(valid_votes, pl.col("valid"))
    return {
        "p_plus": p_plus,
        "p_minus": p_minus,
        "mu": mu,
        "theorem1_bound": None if mu is None or per_step is None else theorem1_bound(mu, per_step),
        "unparsable_votes": mean_of(votes, pl.col("score").is_null()),
        "rm_outcome_accuracy": outcome_accuracy(episodes, steps),
        "self_agreement": self_agreement(judgements),
    }


def theorem1_bound(mu: float, votes: float) -> float:
    """1 - exp(-votes (mu - 1)^2 / 4) if mu > 1, else 0."""
    return 1.0 - exp(-votes * (mu - 1.0) ** 2 / 4.0) if mu > 1.0 else 0.0


def outcome_accuracy(episodes: pl.DataFrame, steps: pl.DataFrame) -> float | None:
    """Share of the trajectories whose average score has the sign of their outcome; ties count one half.

    Trajectories without any valid judgement are left out; null if none is left.
    """
    means = (
        steps.select("trajectory_id", pl.col("mean_score").cast(pl.Float64))
        .drop_nulls()
        .group_by("trajectory_id", maintain_order=True)
        .agg(pl.col("mean_score").mean())
        .join(episodes.select("trajectory_id", "outcome"), on="trajectory_id")
    )
    agreement = pl.col("mean_score") * pl.col("outcome")
    tie = pl.col("mean_score").abs() < 1e-12
    return mean_of(means, pl.when(tie).then(0.5).otherwise((agreement > 0).cast(pl.Float64)))


def self_agreement(judgements: pl.DataFrame) -> float | None:
    """Probability that two valid votes on the same step are equal, averaged over the steps that have two."""
    plus, votes = pl.col("plus").cast(pl.Float64), pl.col("votes").cast(pl.Float64)
    minus = votes - plus
    steps = (
        judgements.drop_nulls("score")
        .group_by("trajectory_id", "step", maintain_order=True)
        .agg(plus=(pl.col("score") > 0).sum(), votes=pl.len())
        .filter(pl.col("votes") > 1)
    )
    return mean_of(steps, (plus * (plus - 1) + minus * (minus - 1)) / (votes * (votes - 1)))


def reward_statistics(policy_rewards: pl.DataFrame, rm_rewards: pl.DataFrame) -> Metrics:
    """How much there is to train on; a sample is a row whose advantage is not 0."""
    trains, spread = pl.col("advantage") != 0, policy_rewards.select(pl.col("advantage").std(ddof=0)).item()
    return {
        "policy_samples": policy_rewards.filter(trains).height,
        "rm_samples": rm_rewards.filter(trains).height,
        "reward_mean": mean_of(policy_rewards, pl.col("reward")),
        "advantage_std": None if spread is None else float(spread),
    }


def difficulty(episodes: pl.DataFrame) -> pl.DataFrame:
    """Per task: task_id, rollouts, accuracy, importance_ratio; in order of task_id. `episodes`: task_id, outcome."""
    won, lost = pl.col("accuracy"), 1 - pl.col("accuracy")
    ratio = pl.max_horizontal(won, lost) / pl.min_horizontal(won, lost)
    return accuracies(episodes).with_columns(importance_ratio=pl.when(ratio.is_finite()).then(ratio))


def balance(episodes: pl.DataFrame) -> Metrics:
    """Quantiles of the ratio over the tasks that have one, and the share of the others."""
    ratios = difficulty(episodes)["importance_ratio"]
    known = ratios.drop_nulls()
    return {
        "importance_ratio_median": known.quantile(0.5, "linear"),
        "importance_ratio_p90": known.quantile(0.9, "linear"),
        "importance_ratio_max": known.quantile(1.0),
        "one_sided_tasks": ratios.null_count() / len(ratios) if len(ratios) else None,
    }


def task_rows(
    episodes: pl.DataFrame, judgements: pl.DataFrame, labels: pl.DataFrame
) -> list[dict[str, float | int | str | None]]:
    """One row per task that was played: its kind, how often it was won, and how well its steps were judged.

    `episodes`: trajectory_id, task_id, slot, kind, status, outcome, n_steps; the others as for `process_metrics`.
    """
    about = episodes.group_by("task_id").agg(
        pl.col("slot", "kind", "status").first(), mean_steps=pl.col("n_steps").cast(pl.Float64).mean()
    )
    known = labels.join(episodes.select("trajectory_id", "outcome"), on="trajectory_id")
    covered = coverage(known).group_by("task_id").agg(distance_covered=pl.col("covered").mean())
    table = difficulty(episodes).rename({"rollouts": "episodes"}).join(about, on="task_id", how="left")
    for more in (covered, accuracy_by_task(known, judgements)):
        table = table.join(more, on="task_id", how="left")
    columns = ["task_id", "slot", "kind", "status", "episodes", "accuracy", "importance_ratio", "mean_steps"]
    columns += ["distance_covered", "good_steps", "process_votes", "process_accuracy"]
    return table.sort("task_id").select(columns).to_dicts()
