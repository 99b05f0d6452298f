"""`judge-accuracy`: the accuracy of a judge, outside of the loop.

The votes are in a scores shard. To compare two judges, score the same trajectories with both
(`rla score-steps --rm ... --out ...`).
"""

from __future__ import annotations

from typing import Any

from rla.metrics.diagnostics import judge_metrics, process_metrics
from rla.pipeline import StageContext
from rla.pipeline.origins import refuse_foreign
from rla.rollouts.labels import labels_of
from rla.store.atomic import write_json
from rla.store.frames import read_iteration


def run(ctx: StageContext) -> dict[str, Any]:
    """Write the figures as JSON and return them; `docs/guide/diagnostics.md` explains them."""
    for name in ("trajectories", "scores"):
        refuse_foreign(ctx.path(name), ctx.config.env.name)
    episodes, steps, judgements = read_iteration(ctx.path("trajectories"), ctx.path("scores"))
    labels = labels_of(ctx)
    metrics = {
        "episodes": episodes.height,
        "unlabelled_episodes": labels.unlabelled,
        **judge_metrics(episodes, judgements, steps),
        **process_metrics(episodes, judgements, labels.frame),
    }
    write_json(ctx.path("out"), metrics)
    return metrics
