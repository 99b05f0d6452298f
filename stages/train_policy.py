"""`train-policy`: one iteration of clipped policy gradient from stored trajectories and rewards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rla.pictures.shard import images_folder
from rla.pipeline import StageContext
from rla.training.stage import Rows, joined_sequences, train_stage

if TYPE_CHECKING:
    from rla.training.sequences import TrainingSequence


def run(ctx: StageContext) -> dict[str, Any]:
    """Write the next policy checkpoint. If no sample trains, it is unchanged, and the stage says so."""
    trajectories, rewards = ctx.path("trajectories"), ctx.path("rewards")

    def sequences() -> Iterator[TrainingSequence]:
        from rla.training.sequences import policy_sequences

        return joined_sequences(
            policy_sequences,
            Rows(trajectories, "trajectories", ("trajectory_id", "task_id", "steps", "segments", "image_spans")),
            Rows(rewards, "policy_rewards", ("trajectory_id", "step")),
            config=ctx.config.train_policy,
            seed=ctx.config.seed,
        )

    return train_stage(
        ctx,
        checkpoint="policy",
        config=ctx.config.train_policy,
        temperature=ctx.config.policy.temperature,
        data=(trajectories, rewards),
        sequences=sequences,
        images=images_folder(trajectories),
    )
