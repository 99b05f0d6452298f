"""How balanced the tasks are: accuracy a and importance ratio of each.

    importance ratio = max(a, 1 - a) / min(a, 1 - a)    for 0 < a < 1; 1 at a = 1/2

Success and failure are sampled with weights a and 1 - a, so on a one-sided task (a of 0 or 1) the ratio has no
bound: it is null there, and such tasks are counted by share. Source: RLAnything, the discussion of task difficulty.
"""

from __future__ import annotations

import polars as pl

from rla.credit.outcome import accuracies
from rla.metrics.process import accuracy_by_task, coverage

Metrics = dict[str, float | int | None]
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
