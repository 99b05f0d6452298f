"""`collect`: conversations for the warm start, from a teacher that plays or from earlier episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.pipeline import StageContext
from rla.pipeline.origins import counts_of, made_by_workers, origin, pool_of, slice_of
from rla.store.atomic import WHOLE, Slice
from rla.store.reading import read_tasks
from rla.store.shards import ShardWriter
from rla_programs.collecting.conversing import named_conversations
from rla_programs.collecting.published import parts_of_source
from rla_programs.collecting.shard import choose_conversations, play_conversations

PLAYED = ("trajectories", "scores", "conversations")  # options that name earlier episodes


def run(ctx: StageContext) -> dict[str, Any]:
    """Play the episodes that an interrupted call has left; returns counts and the path of the shard."""
    given = {name: [Path(one) for one in ctx.options.get(name, ())] for name in PLAYED}
    given["conversations"] = [
        path for one in given["conversations"] for path in named_conversations(str(one), where="--conversations")
    ]
    if given["scores"] and not given["trajectories"]:
        raise UserError("--scores ranks the episodes of --trajectories; give both")
    if not any(given.values()):
        return _collected_by_teacher(ctx)
    if {"slice", "workers"} & ctx.options.keys():
        raise UserError("--slice and --workers divide the episodes to play; leave them out with --trajectories")
    inputs = [one for paths in given.values() for path in paths for one in parts_of_source(path)]
    writer = opened(ctx, inputs, WHOLE)  # each chosen conversation is compared with all others
    if not writer.complete:
        choose_conversations(
            ctx, writer, trajectories=given["trajectories"], scores=given["scores"], files=given["conversations"]
        )
    return {"conversations": str(writer.folder), **counts_of(writer)}


def _collected_by_teacher(ctx: StageContext) -> dict[str, Any]:
    """Conversations of `collect.teacher`."""
    pool = pool_of(ctx, "pool")
    writer = opened(ctx, [pool], slice_of(ctx))
    if not (writer.complete or made_by_workers(ctx, writer)):
        play_conversations(ctx, writer, read_tasks(pool))
    return {"conversations": str(writer.folder), **counts_of(writer)}


def opened(ctx: StageContext, inputs: list[Path], part: Slice) -> ShardWriter:
    return ShardWriter(
        ctx.path("out"),
        "conversations",
        origin(ctx, inputs),
        overwrite=ctx.overwrite,
        part=part,
        tell=ctx.progress.note,
    )
