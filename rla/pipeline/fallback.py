"""What a stage does in a fresh folder: the built-in tasks and an untrained model stand in for what is missing.

Only the conventional folders are filled in; a folder that was named by an option must exist.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.pipeline.context import StageContext, StageSpec
from rla.store.layout import artifact, held_out_root
from rla.store.record import is_complete
from rla.store.shards import clear_started
from rla.store.slices import lock_outputs


def ensure(ctx: StageContext, stage: str | StageSpec, *, overwrite: bool = False, **options: Any) -> None:
    """Run another stage of the same run with its default folders. A slice does not: all of them would at once.

    `stage`: the name of a stage of the core, or what describes a stage of a package.
    """
    spec = stage if isinstance(stage, StageSpec) else next(spec for spec in ctx.stages if spec.name == stage)
    if "slice" in ctx.options:
        raise UserError(f"{ctx.run}: slices share what they read; call `rla {spec.name} --run {ctx.run}` first")
    ctx.progress.note(f"{spec.name}: making what is missing in {ctx.run}")
    made = replace(ctx, spec=spec, paths={}, options=options, overwrite=overwrite)
    with lock_outputs([made.path(option) for option, _ in spec.writes], wait=True):  # another call may be making them
        import_module(spec.module).run(made)


def pool_of(ctx: StageContext, option: str = "pool") -> Path:
    """The pool of the option; the first one is made where it is missing."""
    folder = ctx.path(option)
    if option not in ctx.paths and ctx.iteration <= 1:
        whole_pool(ctx, folder, split=ctx.config.tasks.train_split)
    return folder


def whole_pool(ctx: StageContext, folder: Path, *, split: str) -> None:
    """Make the pool of `split` where it is missing; finish what a call that was killed has begun of it.

    Raises UserError where that call had other parameters, such as a data set.
    """
    begun = folder.exists()
    if is_complete(folder):
        clear_started(folder)
        return
    try:
        ensure(ctx, "make-tasks", split=split)
    except UserError as error:
        if not begun:
            raise
        raise UserError(f"{folder}: not finished; call the `rla make-tasks` that began it again ({error})") from error


def held_out_pool(ctx: StageContext, split: str) -> Path:
    """The pool of a held-out split of the config; it is made where it is missing at the first iteration."""
    root = held_out_root(ctx.run, ctx.config.tasks.held_out_splits, split)
    folder = artifact(root, "test_tasks", 0)
    if ctx.iteration <= 1:
        whole_pool(ctx, folder, split=split)
    return folder


def policy_of(ctx: StageContext, option: str = "policy", model: str = "policy") -> Path:
    """The checkpoint of the option; at the first iteration the initial model where nothing has been trained."""
    folder = ctx.path(option)
    if option in ctx.paths or folder.exists() or ctx.iteration > 1:
        return folder
    initial = artifact(ctx.run, f"init_{model}", 0)
    if not initial.exists():
        whole_pool(ctx, artifact(ctx.run, "train_tasks", 0), split=ctx.config.tasks.train_split)
        ensure(ctx, "init-model")
    if not option.startswith("init") and ctx.config.warm_start.enabled:
        ctx.progress.note(f"{initial}: the model as it started acts; `rla warm-start` trains it first")
    return initial
