"""`train-rm`: one iteration of clipped policy gradient on the judge, from its judgements and their rewards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.pipeline import StageContext
from rla.store.layout import PATHS, artifact
from rla.training.stage import REWARD_MODEL, train_stage


def run(ctx: StageContext) -> dict[str, Any]:
    """Write the next reward model checkpoint. It is unchanged if no sample trains, which the stage says, or if a chat
    server judges, because replies of a server cannot train.
    """
    scores = ctx.path("scores")
    config = replace(ctx.config.train_rm, enabled=ctx.config.train_rm.enabled and ctx.config.judge.trains)
    replayed = range(max(1, ctx.iteration - config.replay), ctx.iteration) if config.enabled else ()
    return train_stage(
        ctx,
        checkpoint="rm",
        config=config,
        temperature=ctx.config.judge.temperature,
        joining=REWARD_MODEL,
        shards=(scores, ctx.path("rewards")),
        earlier=[(artifact(ctx.run, "scores", one), artifact(ctx.run, "rm_rewards", one)) for one in replayed],
        images=scores.parent / Path(PATHS["images"]).name,
    )
