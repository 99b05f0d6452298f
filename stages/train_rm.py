"""`train-rm`: one iteration of clipped policy gradient on the judge, from its judgements and their rewards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.pipeline.context import StageContext
from rla.store.layout import PATHS, earlier_judgements
from rla.store.reading import stream_rows
from rla.training.stage import named_sequences, rewarded, train_stage

if TYPE_CHECKING:
    from rla.training.data import TrainingSequence


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes the next reward model checkpoint. Where no sample trains, it is unchanged, and the stage says so.

    Where a chat server judges, it is always unchanged, because nothing that such a server says can train.
    """
    scores, rewards = ctx.path("scores"), ctx.path("rewards")
    config = replace(ctx.config.train_rm, enabled=ctx.config.train_rm.enabled and ctx.config.judge.trains)
    earlier = earlier_judgements(ctx.run, ctx.iteration, count=config.replay if config.enabled else 0)

    def sequences() -> Iterator[TrainingSequence]:
        for pair in (*earlier, (scores, rewards)):
            yield from sequences_of(ctx, *pair)

    return train_stage(
        ctx,
        checkpoint="rm",
        config=config,
        temperature=ctx.config.judge.temperature,
        data=(scores, rewards),
        sequences=sequences,
        images=scores.parent / Path(PATHS["images"]).name,
        earlier=earlier,
    )


def sequences_of(ctx: StageContext, scores: Path, rewards: Path) -> Iterator[TrainingSequence]:
    """Those of the judgements of one iteration, at most `train_rm.max_samples` steps of them."""
    from rla.training.data import reward_model_sequences

    keys = ("trajectory_id", "step", "judgement")
    wanted = {row["trajectory_id"] for row in rewarded(rewards, "rm_rewards", keys)}
    columns = ["trajectory_id", "step", "prompt_ids", "judgements", "image_spans"]
    sequences = reward_model_sequences(
        stream_rows(scores, "scores", columns, keys=wanted),
        rewarded(rewards, "rm_rewards", keys),
        max_samples=ctx.config.train_rm.max_samples,
        seed=ctx.config.seed,
    )
    return named_sequences(sequences, scores, rewards)
