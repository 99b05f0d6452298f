"""`rla show`: the episodes of a run, or the steps in them that are worth a look, in a terminal or as a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla.cli.commands import RunParams
from rla.cli.guard import NEWEST, Overrides, guarded_command
from rla.errors import UserError

if TYPE_CHECKING:
    from rla.config import Config


@guarded_command
def show(
    run: Annotated[Path | None, typer.Option(help=f"Run folder; {NEWEST}.")] = None,
    iteration: Annotated[int | None, typer.Option(min=0, help="Which iteration; the last that was played.")] = None,
    split: Annotated[str | None, typer.Option(help="Episodes of the evaluation on this held-out split.")] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="All episodes of a task.")] = None,
    episode: Annotated[str | None, typer.Option(metavar="ID", help="This episode.")] = None,
    worst: Annotated[bool, typer.Option("--worst", help="Steps on which the judge errs most against fact.")] = False,
    disputed: Annotated[bool, typer.Option("--disputed", help="Steps whose votes are split most evenly.")] = False,
    count: Annotated[int, typer.Option(min=1, help="How many of these steps.")] = 20,
    html: Annotated[Path | None, typer.Option(help="Write a page to this file instead.")] = None,
    params: RunParams = None,
    set_: Overrides = None,
) -> None:
    """Show episodes: observations and actions, each vote with its reason, reward, advantage, and whether the step
    helped. Ids may be shortened. Without a choice: the tasks that were played.

    Example: rla show --run runs/alfworld-tiny --iteration 3 --worst
    """
    from rla.report.render import as_text, terminal_width
    from rla.store.atomic import write_text
    from rla.text import counted
    from rla_study.showing.drawing import draw, excerpts_page
    from rla_study.showing.episodes import (
        chosen_excerpts,
        named_excerpts,
        played_in,
        played_iterations,
        played_table,
    )

    choices = {"task": task, "episode": episode, "worst": worst, "disputed": disputed}
    asked = [name for name, value in choices.items() if value not in (None, False)]
    place, config = run_and_config(run, params, set_)
    if len(asked) > 1:
        raise UserError(f"--{' and --'.join(asked)}: give one of them")
    found = played_iterations(place, config, split)
    chosen = found[-1] if iteration is None and found else iteration
    if chosen is None:
        raise UserError(f"{place}: nothing was played yet; call `rla rollout` first")
    title = f"{place}, {f'evaluation on {split} of ' if split else ''}iteration {chosen}"
    played = played_in(place, config, chosen, split)
    if task is not None:
        excerpts = named_excerpts(played, config, "task_id", task)
    elif episode is not None:
        excerpts = named_excerpts(played, config, "trajectory_id", episode)
    elif worst or disputed:
        excerpts = chosen_excerpts(played, config, "worst" if worst else "disputed", count)
    else:
        typer.echo(as_text(title, [played_table(played)], width=terminal_width()), nl=False)
        return
    if html is not None:
        write_text(html, excerpts_page(f"{title}: {asked[0]}", excerpts))
        typer.echo(f"{html}: {counted(len(excerpts), 'excerpt')}")
        return
    if not excerpts:
        typer.echo(f"{title}: nothing of the kind")
    draw(excerpts, sys.stdout)


def run_and_config(run: Path | None, params: Path | None, overrides: list[str] | None) -> tuple[Path, Config]:
    """The run, by default the newest, and its parameters. Raises UserError naming the runs that there are."""
    from rla.envs.registry import load_config
    from rla.pipeline.plan import differing_parameters, existing_run, run_and_params

    place, file = run_and_params(run, params, newest=True)
    existing_run(place)
    if run is None and params is None:
        typer.echo(f"the newest run: {place}", err=True)
    config = load_config(file, overrides or [])
    for note in differing_parameters(place, config, (), read=file) if params or overrides else ():
        typer.echo(note, err=True)
    return place, config
