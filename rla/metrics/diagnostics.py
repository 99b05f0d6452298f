"""What an iteration's episodes and judgements say about the policy and about the reward model.

    p+ = P(S = +1 | success),  p- = P(S = -1 | failure)      over valid votes, all steps pooled
    mu = p+ + p-                                             the reward model is informative iff mu > 1
    bound = 1 - exp(-m (mu - 1)^2 / 4) for mu > 1, else 0    at most the ordering accuracy; m: valid
                                                             votes a step, mean over judged steps
    outcome accuracy = P(sign(mean over steps of the mean score) = O)         a tie counts one half
    self-agreement   = P(two different valid votes on one step are equal)     mean over steps with two or more

    importance ratio = max(a, 1 - a) / min(a, 1 - a)         of a task's accuracy a, 0 < a < 1; 1 at a = 1/2

Success and failure are sampled with weights a and 1 - a, so on a one-sided task (a of 0 or 1) the ratio has no
bound: it is null there, and such tasks are counted by share.

The interval of success takes the task as the unit. The votes against fact: `rla.metrics.process`. A quantity without
data is null. Source: RLAnything, Theorem 1 and the discussion of task difficulty.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Any

import polars as pl

from rla.credit.estimators import accuracies
from rla.metrics.intervals import success_interval
from rla.metrics.process import accuracy_by_task, coverage, known_share, process_metrics
from rla.store.records import Status

Metrics = dict[str, float | int | None]


def diagnostics(episodes: pl.DataFrame, judgements: pl.DataFrame, steps: pl.DataFrame) -> Metrics:
    """All of the above as flat numbers, named as in an iteration's metrics file.

    `episodes`: trajectory_id, task_id, status, outcome, n_steps. `judgements`: trajectory_id, step, score
    (+1, -1, null). `steps`: trajectory_id, step, mean_score. Success is that of active tasks; the reward
    model is measured on all episodes given, pending tasks included.
    """
    return {**_success(episodes), **judge_metrics(episodes, judgements, steps), **balance(episodes)}


def judge_metrics(episodes: pl.DataFrame, judgements: pl.DataFrame, steps: pl.DataFrame) -> Metrics:
    """What votes and outcomes alone say about the reward model; arguments as for `diagnostics`."""
    return {
        **_informativeness(episodes, judgements),
        "rm_outcome_accuracy": outcome_accuracy(episodes, steps),
        "self_agreement": self_agreement(judgements),
    }


def theorem1_bound(mu: float, votes: float) -> float:
    """1 - exp(-votes (mu - 1)^2 / 4) where mu > 1, else 0."""
    return 1.0 - exp(-votes * (mu - 1.0) ** 2 / 4.0) if mu > 1.0 else 0.0


def outcome_accuracy(episodes: pl.DataFrame, steps: pl.DataFrame) -> float | None:
    """Share of the trajectories whose average score has the sign of their outcome; ties count one half.

    Trajectories without any valid judgement are left out; null where none is left.
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
    return known_share(means.select(pl.when(tie).then(0.5).otherwise((agreement > 0).cast(pl.Float64)).mean()))


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
    equal = (plus * (plus - 1) + minus * (minus - 1)) / (votes * (votes - 1))
    return known_share(steps.select(equal.mean()))


def reward_statistics(policy_rewards: pl.DataFrame, rm_rewards: pl.DataFrame) -> Metrics:
    """How much there is to train on; a sample is a row whose advantage is not 0."""
    trains = pl.col("advantage") != 0
    return {
        "policy_samples": policy_rewards.filter(trains).height,
        "rm_samples": rm_rewards.filter(trains).height,
        "reward_mean": known_share(policy_rewards.select(pl.col("reward").mean())),
        "advantage_std": known_share(policy_rewards.select(pl.col("advantage").std(ddof=0))),
    }


def _success(episodes: pl.DataFrame) -> Metrics:
    active = episodes.filter(pl.col("status") == Status.ACTIVE.value)
    interval = success_interval(active.select("task_id", pl.col("outcome") > 0).iter_rows())
    return {
        "episodes": active.height,
        "success": interval.estimate if interval else None,
        "success_low": interval.low if interval else None,
        "success_high": interval.high if interval else None,
        "mean_steps": known_share(active.select(pl.col("n_steps").cast(pl.Float64).mean())),
    }


def _informativeness(episodes: pl.DataFrame, judgements: pl.DataFrame) -> Metrics:
    votes = judgements.join(episodes.select("trajectory_id", "outcome"), on="trajectory_id")
    valid = votes.drop_nulls("score")
    p_plus = known_share(valid.filter(pl.col("outcome") > 0).select((pl.col("score") > 0).mean()))
    p_minus = known_share(valid.filter(pl.col("outcome") < 0).select((pl.col("score") < 0).mean()))
    mu = None if p_plus is None or p_minus is None else p_plus + p_minus
    # A reply that does not parse tells nothing: it is no vote of m, and a step that only has such replies has none.
    valid_votes = votes.group_by("trajectory_id", "step").agg(valid=pl.col("score").count())
    per_step = known_share(valid_votes.select(pl.col("valid").mean()))
    return {
        "p_plus": p_plus,
        "p_minus": p_minus,
        "mu": mu,
        "theorem1_bound": None if mu is None or per_step is None else theorem1_bound(mu, per_step),
        "unparsable_votes": known_share(votes.select(pl.col("score").is_null().mean())),
    }


def iteration_metrics(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    judgements: pl.DataFrame,
    labels: pl.DataFrame,
    *,
    unlabelled: int,
    other_pictures: int | None,
    played: Mapping[str, int],
    decided: Mapping[str, Any],
) -> dict[str, Any]:
    """`labels`: those of steps, as `process_metrics` takes them; `unlabelled`: episodes without any; `other_pictures`:
    episodes with labels whose replay showed another picture. `played` and `decided`: the counts of the trajectories'
    and of the verdicts' manifests.
    """
    count = max(played["steps"], 1)
    return {
        **diagnostics(episodes, judgements, steps),
        **process_metrics(episodes, judgements, labels),
        "unlabelled_episodes": unlabelled,
        "replays_with_other_pictures": other_pictures,
        "invalid_actions": played["invalid_actions"] / count,
        "truncated": played["truncated"] / count,
        "context_stops": played["context_stops"],
        "errors": played["env_errors"],
        **decided,
    }


Row = dict[str, float | int | str | None]


def difficulty(episodes: pl.DataFrame) -> pl.DataFrame:
    """Per task: task_id, rollouts, accuracy, importance_ratio; in order of task_id. `episodes`: task_id, outcome."""
    won, lost = pl.col("accuracy"), 1 - pl.col("accuracy")
    ratio = pl.max_horizontal(won, lost) / pl.min_horizontal(won, lost)
    return accuracies(episodes).with_columns(importance_ratio=pl.when(ratio.is_finite()).then(ratio))


def balance(episodes: pl.DataFrame) -> Metrics:
    """Quantiles of the ratio over the tasks that have one, and the share of those that have none."""
    ratios = difficulty(episodes)["importance_ratio"]
    known = ratios.drop_nulls()
    return {
        "importance_ratio_median": known.quantile(0.5, "linear"),
        "importance_ratio_p90": known.quantile(0.9, "linear"),
        "importance_ratio_max": known.quantile(1.0),
        "one_sided_tasks": ratios.null_count() / len(ratios) if len(ratios) else None,
    }


def task_rows(episodes: pl.DataFrame, judgements: pl.DataFrame, labels: pl.DataFrame) -> list[Row]:
    """One row per task that was played: what it is, how often it was won, and how well its steps were judged.

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
    rows: list[Row] = table.sort("task_id").select(columns).to_dicts()
    return rows
