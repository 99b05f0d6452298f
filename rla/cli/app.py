"""The command line: one command per row of `stages.STAGES`, a few that serve them, and the commands of packages.

A stage's module is imported only when its command runs, so that `rla --help` stays quick. A UserError becomes
one line on stderr and exit code 2.

A package registers a command in its pyproject.toml. `rla --help` imports the module, which should therefore import
nothing heavy:

    [project.entry-points."rla.commands"]
    guess = "guess_number:guess"

The object is a function as typer takes it, a `typer.Typer` with commands of its own, or a `StageSpec`, which gets the
options of every stage. A function does its work in `rla.cli.guard.guard`, which turns a UserError into one line.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rla.cli.guard import LOOKING, NEWEST, Option, Overrides, guard, own_options
from rla.cli.show import OptionalCount, envs, show
from rla.errors import UserError
from rla.pipeline.context import StageSpec
from rla.plugins import loaded, package_of, registered
from stages import STAGES

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from rla.pipeline.plan import Plan


GROUP = "rla.commands"
ANY_WORDS = {"ignore_unknown_options": True, "allow_extra_args": True}
SPECS = {spec.name: spec for spec in STAGES}


class Commands(TyperGroup):
    """Commands of the core and of packages; a package cannot take a name of the core. The options of a stage are made
    when it is called, because making all of them would take as long as the rest of `rla --help`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {**{n: TyperCommand(n, help=spec.summary) for n, spec in SPECS.items()}, **self.commands}
        self.own = list(self.commands)

    @cached_property
    def registered(self) -> dict[str, EntryPoint]:
        return registered(GROUP)

    def list_commands(self, ctx: Any) -> list[str]:
        for name in () if ctx.resilient_parsing else self.registered.keys() & self.own:
            typer.echo(f"left out: the command {name} of {package_of(self.registered[name])}: rla has it", err=True)
        return list(dict.fromkeys([*self.own, *self.registered]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in self.registered:
            self.commands[cmd_name] = package_command(self.registered[cmd_name])
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command to call. An error names commands of packages, too."""
        if args and args[0] in SPECS:
            return args[0], made_command(args[0], SPECS[args[0]]), args[1:]
        if args and self.get_command(ctx, args[0]) is None:
            for name in self.registered:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


def made_command(name: str, found: Any, **options: Any) -> Any:
    """The typer command of a function, a `typer.Typer` or a `StageSpec`."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name, rich_help_panel=None)
    else:
        app.command(name, **options)(stage_command(found) if isinstance(found, StageSpec) else found)
    return typer.main.get_group(app).commands[name]


def package_command(entry: EntryPoint) -> Any:
    """The command of an entry point; one that fails with the reason if there is a flaw."""
    try:
        return made_command(entry.name, loaded(entry))
    except UserError as error:
        flaw = error
    except Exception as error:  # not a function, or one of parameters that cannot be options
        said = f"{type(error).__name__}: {error}"
        flaw = UserError(f"{GROUP}: {entry.name} is {entry.value}, of which no command can be made ({said})")

    def fail() -> None:
        raise flaw

    return made_command(entry.name, lambda: guard(fail), help=f"broken: {flaw}", context_settings=ANY_WORDS)


app = typer.Typer(
    name="rla",
    cls=Commands,
    help="Train a policy, a reward model and the tasks of an environment in one closed loop.",
    epilog="`rla <command> --help` shows an example. `rla init` and `rla run` turn the whole loop.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def common_options(spec: StageSpec) -> list[Option]:
    """Options that every stage takes."""
    iteration = 0 if spec.name == "evaluate" else 1
    follows = any(artifact.startswith("previous_") for _, artifact in spec.reads)  # so there is one before it
    own = "the run's config.yaml" if spec.beside else "config.yaml of the --run"
    params = f"Parameters; {own}, else ./params.yaml, else the packaged alfworld-tiny."
    default = NEWEST if spec.name in LOOKING else "runs/<name of the params file>"
    which = "Which iteration, from 1." if follows else "Which iteration; 0 is the warm start."
    return [
        ("params", Annotated[Path | None, typer.Option(help=params)], None),
        ("run", Annotated[Path | None, typer.Option(help=f"Run folder; {default}.")], None),
        ("iteration", Annotated[int, typer.Option(min=int(follows), help=which)], iteration),
        ("set_", Overrides, None),
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
    options = [*own_options(spec), *common_options(spec), *path_options(spec)]

    def command(**values: Any) -> None:
        from rla.cli.calls import call_stage

        guard(lambda: call_stage(spec, values, echo=typer.echo))

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(n, keyword, annotation=a, default=d) for n, a, d in options]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {name: annotation for name, annotation, _ in options}
    command.__doc__ = f"{spec.summary}\n\nExample: {spec.example}"
    command.spec = spec  # type: ignore[attr-defined]
    return command


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
    out: Annotated[Path, typer.Option(help="The file that dvc.yaml reads.")] = Path("iterations.yaml"),
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
    """Turn the whole loop here: a line for each stage, then the report. The same call resumes a run that stopped.

    Example: rla run --iterations 4 --set credit.step_weight=0.5
    """

    def call() -> None:
        from rla.cli.loop import turn_loop

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
    """The options as a plan. Raises UserError if they contradict each other."""
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


def prune(
    run: Annotated[Path | None, typer.Option(help=f"Run folder; {NEWEST}.")] = None,
    params: Annotated[Path | None, typer.Option(help="Parameters; the run's config.yaml, else ./params.yaml.")] = None,
    set_: Overrides = None,
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
    """A line for each checkpoint, and the sum. Raises UserError for a run that does not exist."""
    from rla.config.load import read_config
    from rla.pipeline.finished import finished_iterations, planned_evaluations, prune_run, removals
    from rla.pipeline.run import existing_run, run_and_params
    from rla.store.texts import readable_bytes

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


def params_command(
    params: Annotated[Path | None, typer.Option(help="Parameters; ./params.yaml, else the packaged small run.")] = None,
    env: Annotated[
        str | None, typer.Option(help="Same as --set env.name=NAME; with --schema: of this one alone.")
    ] = None,
    set_: Overrides = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="The JSON Schema, with the own parameters of all that is installed.")
    ] = False,
) -> None:
    """Print every parameter with its value, defaults included, as YAML.

    Example: rla params --env alfworld --set env.own.engine=textworld
    """
    guard(lambda: typer.echo(schema_text(env) if schema else resolved_text(params, env, set_ or []), nl=False))


def schema_text(env: str | None = None) -> str:
    """The schema of a params file, with the parameters of `env` and the sections of its package, or of all installed
    environments and packages. An environment that cannot be imported is left out.
    """
    from rla.envs.registry import environment, installed_environments, schema_of_params

    usable = []
    for name in installed_environments() if env is None else [env]:
        try:
            environment(name)
        except UserError as error:
            typer.echo(f"left out: {error}", err=True)
        else:
            usable.append(name)
    return json.dumps(schema_of_params(usable, alone=env is not None), indent=2) + "\n"


def resolved_text(params: Path | None, env: str | None, overrides: list[str]) -> str:
    """The resolved parameters as YAML. Raises UserError."""
    import yaml

    from rla.cli.calls import overrides_of
    from rla.config import resolved
    from rla.envs.registry import load_config
    from rla.pipeline.run import params_file

    path = params_file(params, env.partition(":")[0] if env else None)
    config = load_config(path, overrides_of({"set_": overrides, "seed": None, "env": env}))
    text: str = yaml.safe_dump(resolved(config), sort_keys=False)
    return f"# {path}\n{text}"


app.command("init")(init_folder)
app.command("run")(run_loop)
app.command("plan")(plan_command)
app.command("envs")(envs)
app.command("params")(params_command)
app.command("prune")(prune)
app.command("show", cls=OptionalCount)(show)


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the versions and exit.")] = False,
) -> None:
    if version:
        from rla.cli.calls import versions

        typer.echo("\n".join(versions()))
        raise typer.Exit


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit status."""
    try:
        app(args=list(arguments), prog_name="rla")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
