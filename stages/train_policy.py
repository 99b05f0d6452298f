"""`train-policy`: one iteration of clipped policy gradient from stored trajectories and rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rla.shards import read_rows
from stages.context import StageContext
from stages.training import rewarded, train_stage

if TYPE_CHECKING:
    from rla.training.data import TrainingSequence


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes the next policy checkpoint; no sample that trains gives an unchanged one and says so."""
    trajectories, rewards = ctx.path("trajectories"), ctx.path("rewards")

    def sequences() -> list[TrainingSequence]:
        from rla.training.data import policy_sequences

        rows = rewarded(rewards, "policy_rewards")
        wanted = {row["trajectory_id"] for row in rows}
        columns = ["trajectory_id", "steps", "segments"]
        played = read_rows(trajectories, "trajectories", columns)
        return policy_sequences(
            [row for row in played if row["trajectory_id"] in wanted],
            rows,
            max_samples=ctx.config.train_policy.max_samples,
            seed=ctx.config.seed,
        )

    return train_stage(
        ctx,
        checkpoint="policy",
        config=ctx.config.train_policy,
        temperature=ctx.config.policy.temperature,
        data=(trajectories, rewards),
        sequences=sequences,
    )
