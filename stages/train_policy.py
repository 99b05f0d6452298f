"""`train-policy`: one iteration of clipped policy gradient from stored trajectories and rewards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rla.pipeline.context import StageContext
from rla.store.images import images_folder
from rla.store.reading import stream_rows
from rla.training.stage import named_sequences, rewarded, train_stage

if TYPE_CHECKING:
    from rla.training.data import TrainingSequence


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes the next policy checkpoint; no sample that trains gives an unchanged one and says so."""
    trajectories, rewards = ctx.path("trajectories"), ctx.path("rewards")

    def sequences() -> Iterator[TrainingSequence]:
        from rla.training.data import policy_sequences

        keys = ("trajectory_id", "step")
        wanted = {row["trajectory_id"] for row in rewarded(rewards, "policy_rewards", keys)}
        columns = ["trajectory_id", "steps", "segments", "image_spans"]
        found = policy_sequences(
            stream_rows(trajectories, "trajectories", columns, keys=wanted),
            rewarded(rewards, "policy_rewards", keys),
            max_samples=ctx.config.train_policy.max_samples,
            seed=ctx.config.seed,
        )
        return named_sequences(found, trajectories, rewards)

    return train_stage(
        ctx,
        checkpoint="policy",
        config=ctx.config.train_policy,
        temperature=ctx.config.policy.temperature,
        data=(trajectories, rewards),
        sequences=sequences,
        images=images_folder(trajectories),
    )
