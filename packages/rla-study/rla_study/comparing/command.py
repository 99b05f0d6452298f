"""`rla compare`: runs side by side, in the terminal or as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla.cli.guard import guard


def compare(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN...]", help="Run folders, the base first; the newest runs fill up to two."),
    ] = None,
    base: Annotated[Path | None, typer.Option(metavar="RUN", help="Compare the others with this run.")] = None,
    at: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Read all at this iteration, not at the last that all have; repeated: the mean."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to this file instead.")] = None,
) -> None:
    """Compare runs: differing parameters, held-out success paired by task, reward model, changed tasks and cost. Runs
    that differ only in their seed are pooled if other runs are compared as well.

    Example: rla compare runs/alfworld-tiny runs/half --html compare.html
    """

    def call() -> None:
        from rla.pipeline.plan import existing_run
        from rla_study.comparing.compare import comparison, comparison_page, comparison_text
        from rla_study.comparing.runs import with_newest

        places = {run: existing_run(run) for run in [*(runs or ()), *([base] if base else [])]}
        given, first = [places[run] for run in runs or ()], places[base] if base else None
        named = given if first is None or first in given else [first, *given]
        found = comparison(with_newest(named), base=first, at=at or ())
        if html is None:
            typer.echo(comparison_text(found), nl=False)
            return
        from rla.store.atomic import write_text

        write_text(html, comparison_page(found))
        typer.echo(f"{html}: {len(found.arms)} compared")

    guard(call)
