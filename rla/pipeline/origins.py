"""What the output of a stage is made from, and how a stage runs and judges what it made."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from rla.config import config_digest, effective_parameters, resolved
from rla.config.differences import shown_value
from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.store.digests import digest
from rla.store.layout import made_together, making_call
from rla.store.reading import read_manifest, read_rows
from rla.store.record import MANIFEST, PARAMETERS, STARTED, Origin, optional_record
from rla.store.run_config import run_config_path, write_run_config

ORIGIN = ("config_digest", "input_digests", "seed")


def origin(ctx: StageContext, inputs: Sequence[Path], *, sections: Sequence[str] = (), also: str = "") -> Origin:
    """The origin of this stage's outputs: digests of its sections of the config and of its inputs.

    Inputs are named by their role, not by their path, so that a run folder may be moved. `also`: whatever else the
    output depends on, such as what is installed. From here on the run has a `config.yaml`. Raises UserError as
    `refuse_apart` and `refuse_foreign` do.
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
    """UserError where the shard `made` was made from another `source` than the shard that lies there now.

    A call that ended too early may have left it. A shard that names no inputs is somebody's own.
    """
    inputs = read_manifest(made).get("input_digests", {}).values()
    if inputs and digest(source) not in inputs:
        raise UserError(
            f"{made}: not made from {source} as it is now; call {making_call(made)} again, with --overwrite"
        )


def refuse_apart(run: Path, made: Path) -> None:
    """UserError where a shard of the run and one that the same call makes were made, or begun, from different origins.

    A call that was killed after it had replaced one of them leaves them so.
    """
    own = optional_record(made, MANIFEST) if made.is_dir() else None  # a file of data is no shard
    for other in made_together(run, made) if own is not None else ():
        record = optional_record(other, MANIFEST) or optional_record(other, STARTED)
        if own and record and any(own[1].get(key) != record[1].get(key) for key in ORIGIN):
            raise UserError(
                f"{made}: {other} belongs to it, and was made or begun with other parameters or inputs; call "
                f"{making_call(made)}, which makes both, again with --overwrite"
            )


def refuse_foreign(made: Path, name: str | None) -> None:
    """UserError for a shard that holds tasks of an environment other than `name`, or episodes that were played in one.

    A task says its environment in a column. Of other shards the manifest does, unless it names no parameters.
    """
    found = optional_record(made, MANIFEST) if made.is_dir() else None
    if found is None or not name:
        return
    kind = found[1].get("kind")
    if kind in ("tasks", "candidates"):
        names = {row["env"] for row in read_rows(made, kind, ["env"])}
    elif kind in ("trajectories", "scores"):
        env = found[1].get(PARAMETERS, {}).get("env")
        names = {env.get("name")} if isinstance(env, dict) else set()
    else:
        return
    if strange := sorted(names - {name, None}):
        raise UserError(
            f"{made}: its {kind} are of the environment {shown_value(strange[0])}, and env.name is {name}; give --env "
            f"{shown_value(strange[0])}, or {kind} of {name}"
        )


def run_async(main: Coroutine[Any, Any, None]) -> None:
    """Run the scheduler; a single error inside its task group is raised as itself, so that its message stands alone."""
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
    """Fail loudly when more than a stated share failed."""
    if total and failed / total > limit:
        raise UserError(f"{folder}: {failed} of {total} {of}, more than rollout.max_failed_share = {limit}; {remedy}")
