"""`rla run`: the whole loop of the folder that it is called in, as `rla plan` writes it; then the report as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla.cli.guard import guard

if TYPE_CHECKING:
    from rla.pipeline.plan import Plan

PIPELINE, PLAN = Path("dvc.yaml"), Path("iterations.yaml")


def run_loop(
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of the run in all.")] = 12,
    evaluate_every: Annotated[int, typer.Option(min=0, help="Also evaluate every K iterations; 0: only the ends.")] = 0,
    params: Annotated[Path, typer.Option(help="Parameters of all stages.")] = Path("params.yaml"),
    run: Annotated[Path | None, typer.Option(help="Run folder; by default as `rla plan` names it.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run; the params' own when not given.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override of every stage.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what other parameters have made.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="All that DVC and the stages say.")] = False,
) -> None:
    """Turn the whole loop here: a line for each stage, then the report. The same call goes on where one stopped.

    Example: rla run --iterations 4 --set credit.step_weight=0.5
    """
    from rla.pipeline.plan import Plan

    def planned() -> Plan:
        return Plan(
            iterations=iterations,
            evaluate_every=evaluate_every,
            params=params,
            run=run,
            seed=seed,
            overrides=set_ or (),
            overwrite=overwrite,
        )

    status = 0

    def call() -> None:
        nonlocal status
        status = turn_loop(planned(), say=typer.echo, verbose=verbose)

    guard(call)
    if status:
        raise typer.Exit(status)


def turn_loop(plan: Plan, *, say: Callable[[str], None], verbose: bool = False) -> int:
    """The exit status of the loop; if it is 0, the report is printed. Raises UserError if there is no pipeline."""
    from rla.cli.loop import turn_planned_loop
    from rla.errors import UserError
    from rla.pipeline.dvc_project import one_run, ready_dvc
    from rla.pipeline.plan import named_plan, run_folder, write_plan
    from stages import STAGES

    if not PIPELINE.is_file():
        raise UserError(f"{PIPELINE}: no such file here; `rla init` writes all that the loop needs")
    plan, _ = named_plan(plan)
    with one_run(PIPELINE):
        say(write_plan(plan, PLAN, stages=STAGES))
        ready_dvc(Path())
        status = turn_planned_loop(say=say, verbose=verbose)
    if not status:
        print_report(run_folder(plan), say=say)
    return status


def print_report(run: Path, *, say: Callable[[str], None]) -> None:
    """The text of the report that DVC has called for; what lies there stays, so that DVC finds it unchanged."""
    from rla.report.build import tables_of_run, text_of_run
    from rla.report.collect import collect
    from rla.report.render import terminal_width
    from rla.store.layout import artifact

    summary = collect(run)
    say(text_of_run(summary, tables_of_run(summary), width=terminal_width()).rstrip("\n"))
    say(f"page: {artifact(run, 'report', 0) / 'report.html'}")
