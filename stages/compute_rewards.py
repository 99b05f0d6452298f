"""`compute-rewards`: outcomes and judgements become rewards and advantages of both models, and diagnostics."""

from __future__ import annotations

from typing import Any

from rla.config.sections import ShapingConfig
from rla.credit.advantages import both_advantages, weighed
from rla.envs.protocols import Probes
from rla.envs.registry import environment
from rla.errors import UserError
from rla.metrics.custom import add_metrics
from rla.metrics.diagnostics import diagnostics, process_metrics, reward_statistics
from rla.pipeline import StageContext
from rla.pipeline.origins import origin, refuse_stale
from rla.rollouts.labels import labels_of
from rla.store.atomic import write_json
from rla.store.frames import read_iteration, read_judgements, training_episodes
from rla.store.reading import read_manifest
from rla.store.shards import Output, write_shards


def run(ctx: StageContext) -> dict[str, Any]:
    """Write `rewards/{policy,rm}` and `metrics.json`. Trajectories of rejected tasks do not train."""
    inputs = [ctx.path(name) for name in ("trajectories", "scores", "verdicts")]
    for made in inputs[1:]:
        refuse_stale(made, source=inputs[0])
    chosen = environment(ctx.config.env.name)
    rule = chosen.reward_rule() if isinstance(chosen, Probes) else None
    credit = ctx.config.credit
    if rule is not None and credit.shaping != ShapingConfig():
        raise UserError(f"credit.shaping: env.name {chosen.name} has rewards of its own; leave the section out")
    episodes, steps, judgements = read_iteration(
        ctx.path("trajectories"), ctx.path("scores"), texts=rule is not None, measured=credit.shaping.of_episodes
    )
    training = training_episodes(episodes, ctx.path("verdicts"))
    if rule is None:
        credit = weighed(credit, training, steps)
        policy, rm = both_advantages(training, steps, judgements, credit)
    else:
        votes = read_judgements(ctx.path("scores"))
        policy, rm = rule.rewards(training, votes, credit)
    made_from = origin(ctx, inputs, sections=("credit",))  # tasks and environment are read for the metrics alone
    frames = (("policy-rewards", "policy_rewards", policy), ("rm-rewards", "rm_rewards", rm))
    outputs = [Output(folder=ctx.path(option), kind=kind, rows=frame.to_dicts()) for option, kind, frame in frames]
    labels = labels_of(ctx)  # before rewards are replaced: it takes long and may fail
    write_shards(outputs, made_from, overwrite=ctx.overwrite, tell=ctx.progress.note)
    played = read_manifest(ctx.path("trajectories"), "trajectories")["counts"]
    metrics = {
        "iteration": ctx.iteration,
        **diagnostics(episodes, judgements, steps),
        **process_metrics(episodes, judgements, labels.frame),
        "unlabelled_episodes": labels.unlabelled,
        **{name: played[name] / max(played["steps"], 1) for name in ("invalid_actions", "truncated")},
        **{"context_stops": played["context_stops"], "errors": played["env_errors"]},
        **read_manifest(ctx.path("verdicts"), "verdicts")["counts"],
    }
    add_metrics(metrics, ctx.path("trajectories"), ctx.config)
    metrics |= {**reward_statistics(policy, rm), "step_weight": credit.step_weight}
    metrics |= {} if rule is None else rule.metrics(episodes, votes)
    write_json(ctx.path("metrics"), metrics)
    return {key: metrics[key] for key in ("success", "mu", "policy_samples", "rm_samples")}
