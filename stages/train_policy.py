"""`train-policy`: one iteration of clipped policy gradient from stored trajectories and rewards."""

from __future__ import annotations

from typing import Any

from rla.pictures.shard import images_folder
from rla.pipeline import StageContext
from rla.training.stage import POLICY, train_stage


def run(ctx: StageContext) -> dict[str, Any]:
    """Write the next policy checkpoint. If no sample trains, it is unchanged, and the stage says so."""
    trajectories = ctx.path("trajectories")
    return train_stage(
        ctx,
        checkpoint="policy",
        config=ctx.config.train_policy,
        temperature=ctx.config.policy.temperature,
        joining=POLICY,
        shards=(trajectories, ctx.path("rewards")),
        images=images_folder(trajectories),
    )
