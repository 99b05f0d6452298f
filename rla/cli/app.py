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
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from rla.cli.environments import check_env, envs
from rla.cli.guard import guard
from rla.cli.own_options import LOOKING, NEWEST, Option, Overrides, own_options
from rla.cli.run import init_folder, plan_command, run_loop
from rla.cli.show import OptionalCount, show
from rla.errors import UserError
from rla.pipeline.context import StageSpec
from rla.plugins import loaded, package_of, registered
from stages import STAGES

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP = "rla.commands"
ANY_WORDS = {"ignore_unknown_options": True, "allow_extra_args": True}
SPECS = {spec.name: spec for spec in STAGES}


class Commands(TyperGroup):
    """Stages, the core's other commands, and those of packages, which cannot take a name of the core. A stage's options
    are made when it is called: those of all stages would take as long as the rest of `rla --help`.
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
    """What typer makes of a function, of a `typer.Typer` or of a `StageSpec`."""
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
    """What every stage takes."""
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
    """What the command prints, a checkpoint a line. Raises UserError for a run that does not exist."""
    from rla.config.load import read_config
    from rla.pipeline.finished import finished_iterations
    from rla.pipeline.params_files import existing_run, run_and_params
    from rla.pipeline.pruning import planned_evaluations, prune_run, removals
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


def merge(
    checkpoint: Path,
    folder: Path,
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Of the weights.")] = "bfloat16",
) -> None:
    """Write a checkpoint as one model folder that others read, an adapter and its base added up.

    Example: rla merge runs/first/12/policy merged
    """

    def call() -> None:
        from rla.models.checkpoint import model_folder
        from rla.models.load import write_merged
        from rla.models.verifying import verify_model
        from rla.store.removing import whole_folder

        model = model_folder(checkpoint)
        verify_model(model)
        with whole_folder(folder) as partial:
            write_merged(model, partial, dtype=dtype)

    guard(call)


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
    """The schema of a params file, with the own parameters of `env` and the sections of its package, or those of all
    that is installed. An environment that cannot be imported is left out.
    """
    from rla.envs.configured import schema_of_params
    from rla.envs.registry import environment, installed_environments

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
    from rla.envs.configured import load_config
    from rla.pipeline.params_files import params_file

    path = params_file(params, env.partition(":")[0] if env else None)
    config = load_config(path, overrides_of({"set_": overrides, "seed": None, "env": env}))
    text: str = yaml.safe_dump(resolved(config), sort_keys=False)
    return f"# {path}\n{text}"


app.command("init")(init_folder)
app.command("run")(run_loop)
app.command("plan")(plan_command)
app.command("envs")(envs)
app.command("check-env")(check_env)
app.command("params")(params_command)
app.command("prune")(prune)
app.command("merge")(merge)
app.command("show", cls=OptionalCount)(show)


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the versions and exit.")] = False,
) -> None:
    if version:
        from rla.cli.call_record import versions

        typer.echo("\n".join(versions()))
        raise typer.Exit


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit status."""
    try:
        app(args=list(arguments), prog_name="rla")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
