"""`rla prune`: removes the weights of old checkpoints, or says which would go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla.cli.guard import guard
from rla.cli.own_options import NEWEST


def prune(
    run: Annotated[Path | None, typer.Option(help=f"Run folder; {NEWEST}.")] = None,
    params: Annotated[Path | None, typer.Option(help="Parameters; the run's config.yaml, else ./params.yaml.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one parameter.")
    ] = None,
    plan: Annotated[Path, typer.Option(help="The file that says which evaluations are to come.")] = Path(
        "iterations.yaml"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would go and its bytes; do nothing.")] = False,
) -> None:
    """Remove the weights of old checkpoints, as `checkpoints` says. Records, metrics and all shards stay.

    Example: rla prune --run runs/alfworld-tiny --set checkpoints.keep=2 --dry-run
    """
    guard(lambda: typer.echo(pruned_text(run, params, set_ or [], plan, dry_run=dry_run)))


def pruned_text(run: Path | None, params: Path | None, overrides: list[str], plan: Path, *, dry_run: bool) -> str:
    """What the command prints, a checkpoint a line. Raises UserError for a run that does not exist."""
    from rla.config.load import read_config
    from rla.pipeline.finished import finished_iterations
    from rla.pipeline.params_files import existing_run, run_and_params
    from rla.pipeline.pruning import planned_evaluations, prune_run, removals
    from rla.store.sizes import readable_bytes

    folder, file = run_and_params(run, params, newest=True)
    existing_run(folder)
    config = read_config(file, overrides, params_of=None)
    if not config.checkpoints.keep:
        return f"nothing goes: checkpoints.keep is 0 in {file}; give --set checkpoints.keep=2, or set it there"
    finished, reason = finished_iterations(folder)
    if dry_run:
        found = removals(folder, config.checkpoints, finished=finished, evaluations=planned_evaluations(plan, folder))
    else:
        found = prune_run(folder, config, plan=plan)
    verb = "would go" if dry_run else "gone"
    lines = [f"{one.checkpoint}: {one.shown} {verb}, {readable_bytes(one.freed)}" for one in found]
    total = readable_bytes(sum(one.freed for one in found))
    state = f"{finished} iterations are finished ({reason}), the last {config.checkpoints.keep} of them stay"
    return "\n".join([*lines, f"{len(found)} checkpoints, {total} {verb}; {state}"])
