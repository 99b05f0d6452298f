"""`--slice i/n` and `--workers n`: which share of a shard a call makes, who makes the others, and what it has to tell
afterwards. Without an option `generator.data_parallel` says how many workers of this machine there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rla.errors import UserError
from rla.pipeline.context import StageContext, called_again
from rla.processes.workers import run_workers, workers_of
from rla.store.reading import read_manifest
from rla.store.shards import ShardWriter
from rla.store.slices import WHOLE, Slice, slice_manifests, slices

REPLACES = "RLA_REPLACES"  # set for the workers of a call that replaces a shard of another origin


def slice_of(ctx: StageContext) -> Slice:
    """The slice that the options ask for. Raises UserError."""
    text, workers = ctx.options.get("slice"), ctx.options.get("workers")
    if text is not None and workers is not None:
        raise UserError("--slice is a share of the work, --workers divides all of it; give one of them")
    if text is not None:
        return replace(Slice.parse(text), replaces=REPLACES in os.environ)
    count = workers_of(ctx.config.generator) if workers is None else int(workers)
    return Slice(index=0, count=count) if count > 1 else WHOLE


def divided(ctx: StageContext, writer: ShardWriter, *, check: Callable[[], Mapping[str, str]]) -> bool:
    """Whether this call leaves the work to workers, which have then done it. Raises UserError.

    `check`: what is done once before they start; they get the environment variables that it returns.
    """
    if writer.slice.index > 0:
        return False
    count, known = writer.slice.count, dict(check())
    if writer.replaces:
        known[REPLACES] = "1"
    ctx.progress.note(f"{ctx.spec.name}: {count} workers")
    asked = "--workers" if "workers" in ctx.options else "generator.data_parallel:"
    with called_again(ctx, ctx.paths) as arguments:
        failed = run_workers(arguments, slices(count), generator=ctx.config.generator, asked=asked, more=known)
    if failed:
        named = ", ".join(f"{part} ({reason})" for part, reason in failed.items())
        raise UserError(
            f"{ctx.spec.name}: {len(failed)} of {count} workers failed, slices {named}, as said above; mend the cause "
            "and call the same command: it goes on with what is left"
        )
    return True


def counts_of(writer: ShardWriter) -> dict[str, Any]:
    """The counts of the shard; before it is complete those of the slice, and which slices are missing."""
    if writer.slice.count == 1 or writer.slice.index == 0 or writer.complete:
        return dict(read_manifest(writer.folder, writer.kind)["counts"])
    found = slice_manifests(writer.folder, writer.slice.count)
    own = found[writer.slice]
    missing = ", ".join(str(part) for part, manifest in found.items() if manifest is None)
    return {"slice": str(writer.slice), **(own["counts"] if own else {}), "missing slices": missing or "none"}
