"""The inputs of a stage, the origin of its outputs, and its division into slices.

In a fresh folder the built-in tasks and an untrained model replace missing inputs. This fills only the folders of
`rla.store.layout`; a folder that an option names must exist.

`--slice i/n` and `--workers n` divide the work of a stage. Without them `generator.data_parallel` gives the number of
workers on this machine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from rla.config import config_digest, effective_parameters, resolved
from rla.config.schema import shown_value
from rla.errors import UserError
from rla.pipeline import StageContext, StageSpec, called_again
from rla.processes import WORKER, run_workers, workers_of
from rla.store.atomic import WHOLE, Slice, lock_outputs, slices
from rla.store.layout import artifact, held_out_root, made_together, making_call
from rla.store.manifest import (
    MANIFEST,
    ORIGIN,
    PARAMETERS,
    STARTED,
    Origin,
    digest,
    is_complete,
    optional_json,
    run_config_path,
    slice_manifests,
    write_run_config,
)
from rla.store.reading import read_manifest, read_rows
from rla.store.shards import ShardWriter, is_finished


def origin(ctx: StageContext, inputs: Sequence[Path], *, sections: Sequence[str] = (), also: str = "") -> Origin:
    """The origin of this stage's outputs: digests of its sections of the config and of its inputs. Writes the run's
    `config.yaml` if there is none.

    Inputs are identified by their position, not by their path, so that a run folder may be moved. `also`: other
    dependencies, such as installed packages. Raises UserError as `refuse_apart` and `refuse_foreign` do.
    """
    for path in inputs:
        refuse_apart(ctx.run, path)
        refuse_foreign(path, ctx.config.env.name)
    wanted = tuple(sections) or ctx.spec.sections
    found = {str(index): path for index, path in enumerate(inputs) if path.exists()}
    names = {index: digest(path) for index, path in found.items()}
    besides = ({"iteration": ctx.iteration} if ctx.spec.looped else {}) | ({"also": also} if also else {})
    if ctx.writes_into_run and not run_config_path(ctx.run).exists():
        write_run_config(ctx.run, resolved(ctx.config))
    return Origin(
        config="/".join([config_digest(ctx.config, wanted), *map(str, besides.values())]),
        inputs=names,
        seed=ctx.config.seed,
        parameters=effective_parameters(ctx.config, wanted) | besides,
        folders={index: str(path) for index, path in found.items()},
    )


def refuse_stale(made: Path, *, source: Path) -> None:
    """Raise UserError if the shard `made` was made from an earlier version of `source`, as a killed call may leave it.
    A shard without recorded inputs was made by the user.
    """
    inputs = read_manifest(made).get("input_digests", {}).values()
    if inputs and digest(source) not in inputs:
        raise UserError(
            f"{made}: not made from {source} as it is now; call {making_call(made)} again, with --overwrite"
        )


def refuse_apart(run: Path, made: Path) -> None:
    """Raise UserError if shards that one call makes have different origins, as a killed call may leave them."""
    others = made_together(run, made) if made.is_dir() else ()  # it may be a file of data
    own = optional_json(made / MANIFEST) if others else None
    for other in others:
        record = optional_json(other / MANIFEST)
        record = optional_json(other / STARTED) if record is None else record
        if own is not None and record is not None and any(own.get(key) != record.get(key) for key in ORIGIN):
            raise UserError(
                f"{made}: {other} belongs to it, and was made or begun with other parameters or inputs; call "
                f"{making_call(made)}, which makes both, again with --overwrite"
            )


def refuse_foreign(made: Path, name: str | None) -> None:
    """Raise UserError if a shard has tasks or episodes of an environment other than `name`. The parameters in its
    manifest name it, if there are any; tasks that a user has written have it in a column.
    """
    manifest = (optional_json(made / MANIFEST) if made.is_dir() else None) or {}
    kind, env = manifest.get("kind"), manifest.get(PARAMETERS, {}).get("env")
    other = env.get("name") if isinstance(env, dict) else None
    if other is None and kind in ("tasks", "candidates"):
        other = next((row["env"] for row in read_rows(made, kind, ["env"]) if row["env"] != name), None)
    if name and other not in (name, None):
        said = f"its {kind} are of the environment {shown_value(other)}, and env.name is {name}"
        raise UserError(f"{made}: {said}; give --env {shown_value(other)}, or {kind} of {name}")


def run_async(main: Coroutine[Any, Any, None]) -> None:
    """Run the scheduler. The first error of its task group is raised without the group, to have its message alone."""
    try:
        asyncio.run(main)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


def check_failures(
    folder: Path,
    failed: int,
    total: int,
    limit: float,
    *,
    of: str = "episodes failed",
    remedy: str = "mend the cause and call the stage again: it plays those groups anew",
) -> None:
    """Raise UserError if more than the share `limit` failed."""
    if total and failed / total > limit:
        raise UserError(f"{folder}: {failed} of {total} {of}, more than rollout.max_failed_share = {limit}; {remedy}")


def ensure(
    ctx: StageContext,
    stage: str | StageSpec,
    *,
    makes: Sequence[Path] = (),
    unless: Callable[[], bool] = lambda: False,
    overwrite: bool = False,
    **options: Any,
) -> None:
    """Run another stage of the same run with its default folders. Does nothing if `unless()` holds once no other call
    makes them. `stage`: the name of a stage of the core, or the `StageSpec` of a package's stage. `makes`: its outputs,
    if these options make only some of them. Raises UserError in a slice, because all slices would run it at once.
    """
    spec = stage if isinstance(stage, StageSpec) else next(spec for spec in ctx.stages if spec.name == stage)
    made = replace(ctx, spec=spec, paths={}, options=options, overwrite=overwrite)
    with lock_outputs(makes or [made.path(option) for option, _ in spec.writes], wait=True):
        if unless():
            return
        if "slice" in ctx.options:
            raise UserError(f"{ctx.run}: slices share what they read; call `rla {spec.name} --run {ctx.run}` first")
        ctx.progress.note(f"{spec.name}: making what is missing in {ctx.run}")
        import_module(spec.module).run(made)


def pool_of(ctx: StageContext, option: str = "pool") -> Path:
    """The pool of the option. The pool of iteration 1 is made if it is missing."""
    folder = ctx.path(option)
    if option not in ctx.paths and ctx.iteration <= 1:
        _make_pool(ctx, folder, split=ctx.config.tasks.train_split)
    return folder


def _make_pool(ctx: StageContext, folder: Path, *, split: str) -> None:
    """Make the pool of `split` if it is missing, or finish the pool of a killed call. Raises UserError if that call had
    other parameters, such as a data set.
    """
    begun = folder.exists()
    try:
        ensure(ctx, "make-tasks", makes=[folder], unless=partial(is_finished, folder), split=split)
    except UserError as error:
        if not begun or is_complete(folder):
            raise
        raise UserError(f"{folder}: not finished; call the `rla make-tasks` that began it again ({error})") from error


def held_out_pool(ctx: StageContext, split: str) -> Path:
    """The pool of a held-out split of the config. It is made at iteration 1 if it is missing."""
    root = held_out_root(ctx.run, ctx.config.tasks.test_splits, split)
    folder = artifact(root, "test_tasks", 0)
    if ctx.iteration <= 1:
        _make_pool(ctx, folder, split=split)
    return folder


def policy_of(ctx: StageContext, option: str = "policy", model: str = "policy") -> Path:
    """The checkpoint of the option; at iteration 1 the initial model if there is no checkpoint."""
    folder = ctx.path(option)
    if option in ctx.paths or folder.exists() or ctx.iteration > 1:
        return folder
    initial = artifact(ctx.run, f"init_{model}", 0)
    if not initial.exists():
        _make_pool(ctx, artifact(ctx.run, "train_tasks", 0), split=ctx.config.tasks.train_split)
    ensure(ctx, "init-model", unless=initial.exists)
    if not option.startswith("init") and ctx.config.warm_start.enabled:
        ctx.progress.note(f"{initial}: the model as it started acts; `rla warm-start` trains it first")
    return initial


def slice_of(ctx: StageContext) -> Slice:
    """The slice by the options or by the number of workers. Raises UserError."""
    text, workers = ctx.options.get("slice"), ctx.options.get("workers")
    if text is not None and workers is not None:
        raise UserError("--slice is a share of the work, --workers divides all of it; give one of them")
    if text is not None:
        return replace(Slice.parse(text), started=WORKER in os.environ)
    count = workers_of(ctx.config.generator) if workers is None else int(workers)
    return Slice(index=0, count=count) if count > 1 else WHOLE


def made_by_workers(ctx: StageContext, writer: ShardWriter) -> bool:
    """Have workers do the work unless this call is a slice. Returns whether they did. Raises UserError if one fails."""
    if writer.slice.index > 0:
        return False
    count = writer.slice.count
    ctx.progress.note(f"{ctx.spec.name}: {count} workers")
    asked = "--workers" if "workers" in ctx.options else "generator.data_parallel:"
    with called_again(ctx, ctx.paths) as arguments:
        arguments += ["--overwrite"] if ctx.overwrite else []
        failed = run_workers(arguments, slices(count), generator=ctx.config.generator, asked=asked)
    if failed:
        named = ", ".join(f"{part} ({reason})" for part, reason in failed.items())
        raise UserError(
            f"{ctx.spec.name}: {len(failed)} of {count} workers failed, slices {named}, as said above; mend the cause "
            "and call the same command: it goes on with what is left"
        )
    return True


def counts_of(writer: ShardWriter) -> dict[str, Any]:
    """The counts of the shard, or of this slice with the names of missing slices if the shard is not complete."""
    if writer.slice.count == 1 or writer.slice.index == 0 or writer.complete:
        return dict(read_manifest(writer.folder, writer.kind)["counts"])
    found = slice_manifests(writer.folder, writer.slice.count)
    own = found[writer.slice]
    missing = ", ".join(str(part) for part, manifest in found.items() if manifest is None)
    return {"slice": str(writer.slice), **(own["counts"] if own else {}), "missing slices": missing or "none"}
