"""`compute-rewards`: outcomes and judgements become rewards and advantages of both models, and diagnostics."""

from __future__ import annotations

from typing import Any

import polars as pl

from rla.credit import outcome
from rla.credit.consistency import rewards as consistency_rewards
from rla.credit.estimators import advantages as policy_advantages
from rla.envs.registry import setting
from rla.metrics.diagnostics import diagnostics, reward_statistics
from rla.metrics.difficulty import task_rows
from rla.metrics.process import process_metrics
from rla.pipeline.common import origin
from rla.pipeline.context import StageContext
from rla.rollouts.ground_truth import labels_of
from rla.rollouts.labels import Labels
from rla.store.atomic import write_json
from rla.store.frames import read_episodes, read_judgements, with_scores
from rla.store.records import Status
from rla.store.shards import read_manifest, read_table, write_shard


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes `rewards/{policy,rm}`, `tasks.json` and `metrics.json`. Trajectories of rejected tasks do not train."""
    inputs = [ctx.path(name) for name in ("trajectories", "scores", "verdicts")]
    rule = setting(ctx.config.env.name).reward_rule()
    episodes, steps, judgements = frames(ctx, texts=rule is not None)
    training = training_episodes(ctx, episodes)
    if rule is None:
        policy, rm = credited(ctx, training, steps, judgements)
    else:
        policy, rm = rule.rewards(training, read_judgements(ctx.path("scores")), ctx.config.credit)
    made_from = origin(ctx, inputs, sections=("credit",))  # the rest is read for the metrics alone
    write_shard(
        ctx.path("policy-rewards"),
        "policy_rewards",
        policy.to_dicts(),
        made_from,
        overwrite=ctx.overwrite,
    )
    write_shard(ctx.path("rm-rewards"), "rm_rewards", rm.to_dicts(), made_from, overwrite=ctx.overwrite)
    labels = labels_of(ctx) if rule is None else Labels()
    write_json(ctx.path("tasks"), task_rows(episodes, judgements, labels.frame))
    metrics = measure(ctx, episodes, steps, judgements, labels) | reward_statistics(policy, rm)
    metrics |= {} if rule is None else rule.metrics(episodes, read_judgements(ctx.path("scores")))
    write_json(ctx.path("metrics"), metrics)
    return {key: metrics[key] for key in ("success", "mu", "policy_samples", "rm_samples")}


def credited(
    ctx: StageContext, training: pl.DataFrame, steps: pl.DataFrame, judgements: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rewards of both models by the rules of `credit`."""
    config = ctx.config.credit
    chosen = steps.join(training.select("trajectory_id"), on="trajectory_id", how="semi")
    policy = policy_advantages(training, chosen, config)
    accuracy = outcome.accuracies(training)
    if config.estimator != "step":  # that one asks nobody who won
        policy = only_mixed(policy, accuracy, low=config.policy_low, high=config.policy_high)
    rm = consistency_rewards(
        judgements,
        policy,
        accuracy,
        step_weight=config.step_weight,
        normalise=config.reward_model_normalise,
        low=config.reward_model_low,
        high=config.reward_model_high,
        balanced=config.reward_model_balanced,
    )
    return policy, rm


def frames(ctx: StageContext, *, texts: bool = False) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """(episodes, steps, judgements); those of episodes that the environment broke are in none of the three."""
    episodes, played = read_episodes(ctx.path("trajectories"), texts=texts)
    judgements = read_judgements(ctx.path("scores"))
    steps = with_scores(played, ctx.path("scores"))
    return episodes, steps, judgements.join(episodes, on="trajectory_id", how="semi", maintain_order="left")


def training_episodes(ctx: StageContext, episodes: pl.DataFrame) -> pl.DataFrame:
    """Active episodes, and pending ones whose task was accepted."""
    verdicts = pl.DataFrame(pl.from_arrow(read_table(ctx.path("verdicts"), "verdicts", ["task_id", "accepted"])))
    accepted = verdicts.filter(pl.col("accepted"))["task_id"]
    active = pl.col("status") == Status.ACTIVE.value
    return episodes.filter(active | pl.col("task_id").is_in(accepted.implode()))


def only_mixed(policy: pl.DataFrame, accuracy: pl.DataFrame, *, low: float, high: float) -> pl.DataFrame:
    """Advantage 0 for tasks outside low < accuracy < high.

    Where all outcomes are equal they cancel in the standardisation, and the judge's noise alone, blown up to unit
    spread, would train the policy.
    """
    inside = accuracy.filter((pl.col("accuracy") > low) & (pl.col("accuracy") < high))["task_id"]
    kept = pl.col("task_id").is_in(inside.implode())
    return policy.with_columns(advantage=pl.when(kept).then("advantage").otherwise(0.0))


def measure(
    ctx: StageContext,
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    judgements: pl.DataFrame,
    labels: Labels,
) -> dict[str, Any]:
    """The iteration's metrics: flat numbers for `dvc metrics` and the report."""
    counts = read_manifest(ctx.path("trajectories"), "trajectories")["counts"]
    verdicts = read_manifest(ctx.path("verdicts"), "verdicts")["counts"]
    played = max(counts["steps"], 1)
    return {
        "iteration": ctx.iteration,
        **diagnostics(episodes, judgements, steps),
        **process_metrics(episodes, judgements, labels.frame),
        "unlabelled_episodes": labels.unlabelled,
        "invalid_actions": counts["invalid_actions"] / played,
        "truncated": counts["truncated"] / played,
        "context_stops": counts["context_stops"],
        "errors": counts["env_errors"],
        **verdicts,
    }
