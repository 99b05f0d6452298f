"""`--slice i/n`, `--workers n` and `launch.stage`: which share of a shard a call makes, who makes the others, and what
it has to tell afterwards.

Without an option the parameters decide: `launch.stage: slurm` makes `launch.slices` tasks of an array, and else
`generator.data_parallel` says how many workers of this machine there are.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.pipeline.again import called_again
from rla.pipeline.context import StageContext
from rla.processes.executors import SliceExecutor, refuse_failures
from rla.processes.slurm import LATE, SlurmArray
from rla.processes.workers import LocalWorkers, workers_of
from rla.store.reading import read_manifest
from rla.store.shards import ShardWriter
from rla.store.slices import WHOLE, Slice, is_complete, slice_manifests, slices

REPLACES = "RLA_REPLACES"  # tells a worker the digest of the record that the call which started it replaces
ARRAYS = "slurm"  # the folder of a run for scripts and logs of job arrays


def slice_of(ctx: StageContext) -> Slice:
    """The slice that the options ask for. Raises UserError."""
    text, workers = ctx.options.get("slice"), ctx.options.get("workers")
    if text is not None and workers is not None:
        raise UserError("--slice is a share of the work, --workers divides all of it; give one of them")
    if text is not None:
        return replace(Slice.parse(text), replaces=os.environ.get(REPLACES))
    if on_cluster(ctx):
        return Slice(index=0, count=ctx.config.launch.slices)
    count = workers_of(ctx.config.generator) if workers is None else int(workers)
    return Slice(index=0, count=count) if count > 1 else WHOLE


def on_cluster(ctx: StageContext) -> bool:
    """Whether a call that divides its work gives it to Slurm: with an option it stays on this machine."""
    return ctx.config.launch.stage == "slurm" and not {"slice", "workers"} & ctx.options.keys()


def divided(ctx: StageContext, writer: ShardWriter, *, check: Callable[[], Mapping[str, str]]) -> bool:
    """Whether this call leaves the work to other processes, which have then done it. Raises UserError.

    `check`: what is done once before they start; they get the environment variables that it returns.
    """
    if writer.slice.index > 0:
        return False
    if on_cluster(ctx):
        checked = check()
        run_array(ctx, writer, checked if writer.replaced is None else {**checked, REPLACES: writer.replaced})
    else:
        call_slices(ctx, writer.slice, check=check, replaced=writer.replaced)
    return True


def call_slices(
    ctx: StageContext,
    share: Slice,
    *,
    check: Callable[[], Mapping[str, str]],
    replaced: str | None,
    more: Sequence[str] = (),
) -> None:
    """`divided`, for a share that stands for all slices. `replaced`: the digest of the record that they may replace.
    `more`: arguments of theirs beside the folders.
    """
    checked = check()
    known = checked if replaced is None else {**checked, REPLACES: replaced}
    ctx.progress.note(f"{ctx.spec.name}: {share.count} workers")
    asked = "--workers" if "workers" in ctx.options else "generator.data_parallel:"
    workers: SliceExecutor = LocalWorkers(generator=ctx.config.generator, asked=asked, more=known)
    with called_again(ctx, ctx.paths) as arguments:
        failures = workers.run([*arguments, *more], slices(share.count))
    refuse_failures(ctx.spec.name, failures, total=share.count, runner="workers")


def run_array(ctx: StageContext, writer: ShardWriter, more: Mapping[str, str]) -> None:
    """The slices that are left, as a job array. Raises UserError."""
    left = writer.unmade_slices()
    folder = fresh_folder(ctx.run / ARRAYS, f"{ctx.iteration}-{ctx.spec.name}")
    array: SliceExecutor = SlurmArray(
        folder=folder,
        name=array_name(ctx.spec.name, writer.folder),
        options=ctx.config.launch.sbatch,
        more=more,
        tell=ctx.progress.note,
    )
    with called_again(ctx, ctx.paths, place=folder) as arguments:
        failures = array.run(arguments, left)
        refuse_failures(ctx.spec.name, failures, total=writer.slice.count, runner="slices")
        if wait_for_manifests(writer) and not is_complete(writer.folder):
            # two slices that end at once on two machines may each miss the manifest of the other
            joining = LocalWorkers(generator=GeneratorConfig(backend="scripted"), asked="", more=more)
            failures = joining.run(arguments, left[:1])
            refuse_failures(ctx.spec.name, failures, total=writer.slice.count, runner="slices")


def wait_for_manifests(writer: ShardWriter) -> bool:
    """Whether this machine sees the manifests of all slices, or that of the whole, which others have just written."""
    end = time.monotonic() + LATE
    while True:
        list(writer.folder.iterdir())  # a network file system then asks its server anew
        made = None not in slice_manifests(writer.folder, writer.slice.count).values()
        if made or is_complete(writer.folder) or time.monotonic() > end:
            return made or is_complete(writer.folder)
        time.sleep(0.5)


def array_name(stage: str, output: Path) -> str:
    """What the jobs of this output are called: equal calls call them the same, others do not."""
    return f"rla-{stage}-{hashlib.sha256(os.fsencode(output.resolve())).hexdigest()[:12]}"


def fresh_folder(parent: Path, name: str) -> Path:
    """A new folder `<name>-1`, `<name>-2` and so on: a log of before is never overwritten."""
    parent.mkdir(parents=True, exist_ok=True)
    taken = [path.name.removeprefix(f"{name}-") for path in parent.glob(f"{name}-*")]
    number = max(map(int, filter(str.isdecimal, taken)), default=0)
    while True:
        number += 1
        try:
            (folder := parent / f"{name}-{number}").mkdir()
        except FileExistsError:  # another call was first
            continue
        return folder


def counts_of(writer: ShardWriter) -> dict[str, Any]:
    """The counts of the shard; before it is complete those of the slice, and which slices are missing."""
    if writer.slice.count == 1 or writer.slice.index == 0 or writer.complete:
        return dict(read_manifest(writer.folder, writer.kind)["counts"])
    found = slice_manifests(writer.folder, writer.slice.count)
    own = found[writer.slice]
    missing = ", ".join(str(part) for part, manifest in found.items() if manifest is None)
    return {"slice": str(writer.slice), **(own["counts"] if own else {}), "missing slices": missing or "none"}
