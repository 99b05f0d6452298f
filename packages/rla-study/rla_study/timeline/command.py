"""`rla timeline`: which device ran which stage when, in the terminal, as a figure or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rla.cli.guard import NEWEST, guard


def timeline(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help=f"Run folder; {NEWEST}.")] = None,
    price: Annotated[
        float | None, typer.Option(min=0, metavar="PER_GPU_HOUR", help="Also the cost, at this price of a GPU hour.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All numbers, as JSON.")] = False,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a figure to this file instead.")] = None,
) -> None:
    """Draw which GPU (or CPU) ran which stage when, with the share of idle time, and GPU hours.

    Example: rla timeline runs/alfworld-tiny --price 2.5
    """
    guard(lambda: _print_timeline(run, price=price, as_json=as_json, svg=svg))


def _print_timeline(run: Path | None, *, price: float | None, as_json: bool, svg: Path | None) -> None:
    """Raises UserError for a folder without times."""
    from rla.errors import UserError
    from rla.pipeline.plan import existing_run, stored_runs
    from rla.report.render import terminal_width
    from rla.store.atomic import write_text
    from rla_study.timeline.drawing import timeline_lines, timeline_svg, told_timeline
    from rla_study.timeline.timeline import timeline_json, timeline_of

    place = existing_run(run)
    found = timeline_of(place)
    if found is None:
        raise UserError(f"{place}: no stage has left its time there; give one of {', '.join(map(str, stored_runs()))}")
    if as_json:
        typer.echo(json.dumps(timeline_json(found, price=price), indent=1))
        return
    if svg is not None:
        write_text(svg, timeline_svg(found))
        typer.echo("\n".join([*told_timeline(found, price=price), f"{svg}: the timeline as a figure"]))
        return
    from rich.console import Console

    width = terminal_width()
    console = Console(width=width, highlight=False)
    told = told_timeline(found, price=price)
    for line in timeline_lines(found, width=width):
        console.print(line, soft_wrap=True)
    for said in told:
        console.print(said, markup=False, soft_wrap=True)
