"""`rla init`, `rla plan` and `rla run`: a folder for the loop, the plan that DVC reads, and the whole loop, then the
report as text.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla.cli.guard import guard

if TYPE_CHECKING:
    from rla.pipeline.plan import Plan

PIPELINE, PLAN = Path("dvc.yaml"), Path("iterations.yaml")


Iterations = Annotated[int, typer.Option(min=1, help="Iterations of the run in all.")]
EvaluateEvery = Annotated[int, typer.Option(min=0, help="Also evaluate every K iterations; 0: only the ends.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the run; the params' own when not given.")]
StageOverrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override of every stage.")
]


def init_folder(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The folder; it is made where it is not there.")
    ] = Path(),
    pipeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose parameters, else alfworld-tiny; `list` names them all.")
    ] = None,
    env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment, for the pipeline `small`, which runs any.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="FOLDER|ID", help="A chat model: parameters that suit it, and why.")
    ] = None,
    memory: Annotated[
        float | None, typer.Option(min=0.0, help="With --model: GB of the GPU; 0: none. By default this machine's.")
    ] = None,
) -> None:
    """Write dvc.yaml, params.yaml and iterations.yaml into a folder that has none of them.

    Example: rla init mine --pipeline alfworld-tiny
    """

    def call() -> None:
        from rla.errors import UserError
        from rla.pipeline.plan import begin_folder, pipelines
        from rla.pipeline.run import SMALL_RUN

        if pipeline == "list":
            broken: list[str] = []
            typer.echo("\n".join(pipelines(broken)))
            for flaw in broken:
                typer.echo(f"left out: {flaw}", err=True)
            return
        if model is None:
            made = begin_folder(folder, pipeline=pipeline or SMALL_RUN, env=env)
        elif pipeline or env:
            raise UserError("--model chooses the pipeline, one of ALFWorld; leave --pipeline and --env out")
        else:
            from rla.pipeline.context import implementation

            chosen, changes, reasons = implementation("init.model")(model, memory)
            made = begin_folder(folder, pipeline=chosen, changes=changes, notes=reasons)
            typer.echo("\n".join(reasons))
        typer.echo(f"{folder}: {', '.join(str(path.relative_to(folder)) for path in made)}")
        first = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
        typer.echo(f"next: {first}rla run")

    guard(call)


def plan_command(
    iterations: Iterations = 12,
    evaluate_every: EvaluateEvery = 0,
    params: Annotated[Path, typer.Option(help="Parameters that the stages are called with.")] = Path("params.yaml"),
    run: Annotated[
        Path | None, typer.Option(help="Run folder; runs/<name of the params file>[-seed<N>][-KEY-VALUE].")
    ] = None,
    seed: Seed = None,
    set_: StageOverrides = None,
    out: Annotated[Path, typer.Option(help="The file that dvc.yaml reads.")] = PLAN,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let the stages replace what a run of other parameters has made.")
    ] = False,
) -> None:
    """Write iterations.yaml: which iterations and evaluations `dvc repro` chains.

    Example: rla plan --iterations 60 --evaluate-every 10
    """

    def call() -> None:
        from rla.pipeline.dvc_project import one_run, ready_dvc
        from rla.pipeline.plan import write_plan
        from stages import STAGES

        pipeline = out.with_name("dvc.yaml")
        with one_run(pipeline) if pipeline.is_file() else nullcontext():
            plan = planned(iterations, evaluate_every, params, run, seed, set_, overwrite)
            typer.echo(write_plan(plan, out, stages=STAGES))
            if pipeline.is_file():
                ready_dvc(out.parent)

    guard(call)


def run_loop(
    iterations: Iterations = 12,
    evaluate_every: EvaluateEvery = 0,
    params: Annotated[Path, typer.Option(help="Parameters of all stages.")] = Path("params.yaml"),
    run: Annotated[Path | None, typer.Option(help="Run folder; by default as `rla plan` names it.")] = None,
    seed: Seed = None,
    set_: StageOverrides = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what other parameters have made.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="All that DVC and the stages say.")] = False,
) -> None:
    """Turn the whole loop here: a line for each stage, then the report. The same call goes on where one stopped.

    Example: rla run --iterations 4 --set credit.step_weight=0.5
    """

    def call() -> None:
        plan = planned(iterations, evaluate_every, params, run, seed, set_, overwrite)
        if status := turn_loop(plan, say=typer.echo, verbose=verbose):
            raise typer.Exit(status)

    guard(call)


def planned(
    iterations: int,
    evaluate_every: int,
    params: Path,
    run: Path | None,
    seed: int | None,
    overrides: list[str] | None,
    overwrite: bool,
) -> Plan:
    """The options as a plan. Raises UserError for those that no plan can have."""
    from rla.pipeline.plan import Plan

    return Plan(
        iterations=iterations,
        evaluate_every=evaluate_every,
        params=params,
        run=run,
        seed=seed,
        overrides=overrides or (),
        overwrite=overwrite,
    )


def turn_loop(plan: Plan, *, say: Callable[[str], None], verbose: bool = False) -> int:
    """The exit status of the loop; if it is 0, the report is printed. Raises UserError if there is no pipeline."""
    from rla.cli.loop import turn_planned_loop
    from rla.errors import UserError
    from rla.metrics.custom import brought
    from rla.pipeline.dvc_project import one_run, ready_dvc
    from rla.pipeline.plan import named_plan, run_folder, write_plan
    from rla.report.build import Accompanies
    from stages import STAGES

    if not PIPELINE.is_file():
        raise UserError(f"{PIPELINE}: no such file here; `rla init` writes all that the loop needs")
    asked = plan
    plan, config = named_plan(plan)
    with one_run(PIPELINE):
        say(write_plan(plan, PLAN, stages=STAGES))
        ready_dvc(Path())
        told = [one.accompany(asked, run_folder(plan), config, say) for one in brought(Accompanies)]

        def passed(stage: str, following: list[str]) -> None:
            for tell in told:
                tell(stage, following)

        status = turn_planned_loop(say=say, verbose=verbose, passed=passed)
    if not status:
        print_report(run_folder(plan), say=say)
        passed("", [])
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
