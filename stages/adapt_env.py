"""`adapt-env`: for tasks whose accuracy left the band, propose harder or easier ones, each proven solvable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rla.adaptation.candidates import candidate_counts, proposing_model, write_candidates
from rla.adaptation.selection import chosen_tasks_to_change
from rla.envs.protocols import Adapts, need
from rla.envs.registry import environment
from rla.pipeline import StageContext
from rla.pipeline.origins import origin
from rla.store.reading import read_manifest
from rla.store.shards import ShardWriter

MODEL = ("policy", "generator")  # of reads and sections: read only if a language model proposes


def run(ctx: StageContext) -> dict[str, Any]:
    """Write all candidates, at most one valid one per slot, and the reason why others are not valid.

    A part of the shard is a chosen task, so that proofs of an interrupted call stay.
    """
    env, enabled = environment(ctx.config.env.name), ctx.config.adaptation.enabled
    if enabled:
        need(env, Adapts, "adapt-env")
    model = proposing_model(ctx)
    inputs = [ctx.path(name) for name, _ in ctx.spec.reads if name not in MODEL]
    inputs += [model] if isinstance(model, Path) else []
    sections = [name for name in ctx.spec.sections if model is not None or name not in MODEL]
    folder = ctx.path("out")
    made_from = origin(ctx, inputs, sections=sections)
    writer = ShardWriter(folder, "candidates", made_from, overwrite=ctx.overwrite, tell=ctx.progress.note)
    if not writer.complete:
        choices = chosen_tasks_to_change(ctx, pool=ctx.path("pool")) if enabled else []
        write_candidates(ctx, writer, choices, model, env)
        writer.finish(candidate_counts(choices, writer.parts(), env))
    return {"candidates": str(folder), **read_manifest(folder, "candidates")["counts"]}
