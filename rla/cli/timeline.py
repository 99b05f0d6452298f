"""`rla timeline`: which device did which stage when, in the terminal or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rla.cli.guard import guard
from rla.cli.stored_runs import here

TIMES = "timings"  # all that it reads of a run


def timeline(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    price: Annotated[
        float | None, typer.Option(min=0, metavar="PER_GPU_HOUR", help="Also the cost, at this price of a GPU hour.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All numbers, as JSON.")] = False,
) -> None:
    """Draw which GPU (or CPU) did which stage when, with the share of time in which nothing ran, and GPU hours.

    Example: rla timeline runs/alfworld-tiny --price 2.5
    """
    guard(lambda: print_timeline(here(run, places=(TIMES,)) or run, price=price, as_json=as_json))


def print_timeline(run: Path, *, price: float | None, as_json: bool) -> None:
    """Raises UserError for a folder without times."""
    from rla.errors import UserError
    from rla.report.render import terminal_width
    from rla.report.timeline import timeline_json, timeline_of
    from rla.report.timeline_drawing import timeline_lines, told_timeline

    found = timeline_of(run)
    if found is None:
        there = "no stage has left its time there" if run.is_dir() else "no such run"
        raise UserError(f"{run}: {there}; give one of the folders below runs")
    if as_json:
        typer.echo(json.dumps(timeline_json(found, price=price), indent=1))
        return
    from rich.console import Console

    width = terminal_width()
    console = Console(width=width, highlight=False)
    told = told_timeline(found, price=price)
    for line in timeline_lines(found, width=width):
        console.print(line, soft_wrap=True)
    for said in told:
        console.print(said, markup=False, soft_wrap=True)
