"""`judge-accuracy`: how good is a judge, without a turn of the loop.

Any judge whose votes lie in a scores shard is measured, on any trajectories whose tasks are known: score the same
trajectories with two models (`rla score-steps --rm ... --out ...`) and compare.
"""

from __future__ import annotations

from typing import Any

from rla.metrics.diagnostics import judge_metrics
from rla.metrics.process import process_metrics
from rla.pipeline.context import StageContext
from rla.pipeline.origins import refuse_foreign
from rla.rollouts.labels import labels_of
from rla.store.atomic import write_json
from rla.store.frames import read_iteration


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes the figures as JSON and returns them; `docs/guide/diagnostics.md` says what each means."""
    for name in ("trajectories", "scores"):
        refuse_foreign(ctx.path(name), ctx.config.env.name)
    episodes, steps, judgements = read_iteration(ctx.path("trajectories"), ctx.path("scores"))
    labels = labels_of(ctx)
    metrics = {
        "episodes": episodes.height,
        "unlabelled_episodes": labels.unlabelled,
        "replays_with_other_pictures": labels.other_pictures,
        **judge_metrics(episodes, judgements, steps),
        **process_metrics(episodes, judgements, labels.frame),
    }
    write_json(ctx.path("out"), metrics)
    return metrics
