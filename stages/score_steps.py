"""`score-steps`: m judgements of every step by the reward model, or its texts about each task (`Probes`)."""

from __future__ import annotations

from typing import Any

from rla.adaptation.selection import episodes_to_judge
from rla.pipeline import StageContext
from rla.pipeline.origins import counts_of, made_by_workers, origin, policy_of, slice_of
from rla.rollouts.scores import finish_scores, score_played
from rla.store.reading import read_manifest
from rla.store.shards import ShardWriter

# Folders and parameters that decide which tasks train or change; they are read only with `judge.tasks: training`.
DECIDED = ("verdicts", "standings", "next-pool")
BANDS = ("credit.policy_band", "credit.reward_model_band")
DECIDING = ("adaptation", "credit.estimator", "credit.step_weight", *BANDS)


def run(ctx: StageContext) -> dict[str, Any]:
    """Judge all steps but those that an earlier call has finished. With `judge.enabled: false` the shard is empty. If
    `judge.server` is set, the reward model is not read.
    """
    trajectories = ctx.path("trajectories")
    read_manifest(trajectories, "trajectories")  # raises before a missing model is made
    judged = ctx.config.judge.enabled
    rm = policy_of(ctx, "rm", "rm") if judged and ctx.config.judge.trains else None
    folder = ctx.path("out")
    chosen = judged and ctx.config.judge.tasks == "training"
    besides = [*([rm] if rm else []), *([ctx.path(name) for name in DECIDED] if chosen else [])]
    sections = [name for name in ctx.spec.sections if name not in ("credit", "adaptation")]
    sections += DECIDING if chosen else ()
    made_from = origin(ctx, [trajectories, *besides], sections=sections)
    writer = ShardWriter(
        folder, "scores", made_from, overwrite=ctx.overwrite, part=slice_of(ctx), tell=ctx.progress.note
    )
    if not (writer.complete or made_by_workers(ctx, writer)):
        if judged:
            only = episodes_to_judge(ctx) if chosen else None
            score_played(ctx, writer, trajectories, rm, pools=("pool", "candidates"), only=only)
        elif writer.slice.takes(0):
            writer.write(0, [])
        finish_scores(ctx, writer, rm)
    return {"scores": str(folder), **counts_of(writer)}
