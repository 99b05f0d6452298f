"""The command line: one command per row of `stages.STAGES`, and a few that serve them.

A stage's module is imported only when its command runs, so that `rla --help` stays quick. A UserError becomes
one line on stderr and exit code 2.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rla.cli.ablation import ablation
from rla.cli.compare import compare
from rla.cli.engines import engines
from rla.cli.env import env
from rla.cli.environments import check_env, envs
from rla.cli.guard import guard
from rla.cli.init import init_folder
from rla.cli.lineage import lineage
from rla.cli.own_options import LOOKING, NEWEST, OWN_OPTIONS, Option
from rla.cli.params import params_command
from rla.cli.plan_memory import plan_memory
from rla.cli.prefork import prefork
from rla.cli.prune import prune
from rla.cli.run import run_loop
from rla.cli.show import OptionalCount, show
from rla.cli.timeline import timeline
from rla.cli.transfer import pull, push
from rla.cli.version import versions
from rla.cli.view import export, view
from rla.pipeline.spec import StageSpec
from stages import STAGES

app = typer.Typer(
    name="rla",
    help="Train a policy, a reward model and the tasks of an environment in one closed loop.",
    epilog="`rla <command> --help` shows an example. `rla init` and `rla run` turn the whole loop.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)
app.add_typer(prefork, name="prefork", rich_help_panel=None)
app.add_typer(engines, name="engines", rich_help_panel=None)
app.add_typer(ablation, name="ablation", rich_help_panel=None)
app.add_typer(env, name="env", rich_help_panel=None)


def common_options(spec: StageSpec) -> list[Option]:
    """What every stage takes."""
    iteration = 0 if spec.name == "evaluate" else 1
    follows = any(artifact.startswith("previous_") for _, artifact in spec.reads)  # so there is one before it
    own = "the run's config.yaml" if spec.beside else "config.yaml of the --run"
    params = f"Parameters; {own}, else ./params.yaml, else the packaged alfworld-tiny."
    default = NEWEST if spec.name in LOOKING else "runs/<name of the params file>"
    which = "Which iteration, from 1." if follows else "Which iteration; 0 is the warm start."
    return [
        (
            "params",
            Annotated[Path | None, typer.Option(help=params)],
            None,
        ),
        (
            "run",
            Annotated[Path | None, typer.Option(help=f"Run folder; {default}.")],
            None,
        ),
        (
            "iteration",
            Annotated[int, typer.Option(min=int(follows), help=which)],
            iteration,
        ),
        (
            "set_",
            Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one parameter.")],
            None,
        ),
        ("seed", Annotated[int | None, typer.Option(help="Same as --set seed=N.")], None),
        ("env", Annotated[str | None, typer.Option(help="Same as --set env.name=NAME.")], None),
        (
            "dry_run",
            Annotated[bool, typer.Option("--dry-run", help="Print config and folders; do nothing.")],
            False,
        ),
        (
            "overwrite",
            Annotated[bool, typer.Option("--overwrite", help="Replace outputs of other parameters or inputs.")],
            False,
        ),
    ]


def path_options(spec: StageSpec) -> list[Option]:
    """One option per folder that the stage reads or writes."""
    described = [(name, artifact, "Read") for name, artifact in spec.reads]
    described += [(name, artifact, "Written") for name, artifact in spec.writes]
    return [
        (
            f"path_{name}".replace("-", "_"),
            Annotated[
                Path | None,
                typer.Option(f"--{name}", metavar="PATH", help=f"{verb} here instead of the run's {artifact}."),
            ],
            None,
        )
        for name, artifact, verb in described
    ]


def stage_command(spec: StageSpec) -> Callable[..., None]:
    """The function that typer turns into a command: its signature is built from the stage table."""
    options = [*OWN_OPTIONS.get(spec.name, []), *common_options(spec), *path_options(spec)]

    def command(**values: Any) -> None:
        from rla.cli.calls import call_stage

        guard(lambda: call_stage(spec, values, echo=typer.echo))

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(n, keyword, annotation=a, default=d) for n, a, d in options]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {name: annotation for name, annotation, _ in options}
    command.__doc__ = f"{spec.summary}\n\nExample: {spec.example}"
    return command


for _spec in STAGES:
    app.command(_spec.name)(stage_command(_spec))


app.command("init")(init_folder)
app.command("run")(run_loop)
app.command("lineage")(lineage)
app.command("timeline")(timeline)
app.command("compare")(compare)
app.command("envs")(envs)
app.command("check-env")(check_env)
app.command("params")(params_command)
app.command("prune")(prune)
app.command("push")(push)
app.command("pull")(pull)
app.command("show", cls=OptionalCount)(show)
app.command("export")(export)
app.command("view")(view)
app.command("plan-memory")(plan_memory)


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the versions and exit.")] = False,
) -> None:
    if version:
        typer.echo("\n".join(versions()))
        raise typer.Exit


@app.command("plan")
def plan_command(
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of the run in all.")] = 12,
    evaluate_every: Annotated[int, typer.Option(min=0, help="Also evaluate every K iterations; 0: only the ends.")] = 0,
    params: Annotated[Path, typer.Option(help="Parameters that the stages are called with.")] = Path("params.yaml"),
    run: Annotated[
        Path | None, typer.Option(help="Run folder; runs/<name of the params file>[-seed<N>][-KEY-VALUE].")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run; the params' own when not given.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override of every stage.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The file that dvc.yaml reads.")] = Path("iterations.yaml"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let the stages replace what a run of other parameters has made.")
    ] = False,
) -> None:
    """Write iterations.yaml: which iterations and evaluations `dvc repro` chains.

    Example: rla plan --iterations 60 --evaluate-every 10
    """
    from rla.pipeline.dvc_project import one_run, ready_dvc
    from rla.pipeline.plan import Plan, write_plan

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

    def call() -> None:
        pipeline = out.with_name("dvc.yaml")
        if not pipeline.is_file():
            typer.echo(write_plan(planned(), out, stages=STAGES))
            return
        with one_run(pipeline):
            typer.echo(write_plan(planned(), out, stages=STAGES))
            ready_dvc(out.parent)

    guard(call)


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit status."""
    try:
        app(args=list(arguments), prog_name="rla")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
