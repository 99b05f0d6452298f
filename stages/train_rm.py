"""`train-rm`: one iteration of clipped policy gradient on the judge, from its judgements and their rewards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.pipeline import StageContext
from rla.store.layout import PATHS, artifact
from rla.training.stage import Rows, joined_sequences, train_stage

if TYPE_CHECKING:
    from rla.training.sequences import TrainingSequence


def run(ctx: StageContext) -> dict[str, Any]:
    """Write the next reward model checkpoint. It is unchanged if no sample trains, which the stage says, or if a chat
    server judges, because replies of a server cannot train.
    """
    scores, rewards = ctx.path("scores"), ctx.path("rewards")
    config = replace(ctx.config.train_rm, enabled=ctx.config.train_rm.enabled and ctx.config.judge.trains)
    replayed = range(max(1, ctx.iteration - config.replay), ctx.iteration) if config.enabled else ()
    earlier = [(artifact(ctx.run, "scores", one), artifact(ctx.run, "rm_rewards", one)) for one in replayed]

    def sequences() -> Iterator[TrainingSequence]:
        from rla.training.sequences import reward_model_sequences

        for judged, paid in (*earlier, (scores, rewards)):
            yield from joined_sequences(
                reward_model_sequences,
                Rows(judged, "scores", ("trajectory_id", "task_id", "step", "prompt_ids", "judgements", "image_spans")),
                Rows(paid, "rm_rewards", ("trajectory_id", "step", "judgement")),
                config=config,
                seed=ctx.config.seed,
            )

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
