"""The command line: one command per row of `stages.STAGES`, those of `rla.cli.commands`, and the commands of packages.

A stage's module is imported only when its command runs, so that `rla --help` stays quick. A UserError becomes one line
on stderr and exit code 2.

A package registers a command in the entry-point group `rla.commands`: a function as typer takes it, a `typer.Typer`
with commands of its own, or a `StageSpec`, which gets the options of every stage. A function does its work in
`rla.cli.guard.guard`, which turns a UserError into one line. `rla --help` imports the module, which should therefore
import nothing heavy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rla.cli import commands
from rla.cli.guard import LOOKING, NEWEST, Overrides, guard, guarded_command
from rla.errors import UserError
from rla.pipeline import StageSpec
from rla.plugins import loaded, package_of, package_versions, registered
from stages import STAGES

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP = "rla.commands"
_ANY_WORDS = {"ignore_unknown_options": True, "allow_extra_args": True}
SPECS = {spec.name: spec for spec in STAGES}


class Commands(TyperGroup):
    """Commands of the core and of packages; a package cannot take a name of the core. The options of a stage are made
    when it is called, because making all of them would take as long as the rest of `rla --help`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {**{n: TyperCommand(n, help=spec.summary) for n, spec in SPECS.items()}, **self.commands}
        self.own = list(self.commands)

    def list_commands(self, ctx: Any) -> list[str]:
        for name in () if ctx.resilient_parsing else registered(GROUP).keys() & self.own:
            typer.echo(f"left out: the command {name} of {package_of(registered(GROUP)[name])}: rla has it", err=True)
        return list(dict.fromkeys([*self.own, *registered(GROUP)]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = None if cmd_name in self.own else registered(GROUP).get(cmd_name)
        return _package_command(entry) if entry else super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command to call. An error names commands of packages, too."""
        if args and args[0] in SPECS:
            return args[0], _made_command(args[0], SPECS[args[0]]), args[1:]
        if args and (found := self.get_command(ctx, args[0])):
            return args[0], found, args[1:]
        self.commands.update({name: self.get_command(ctx, name) for name in registered(GROUP)})
        return super().resolve_command(ctx, args)


def _made_command(name: str, found: Any, **options: Any) -> Any:
    """The typer command of a function, a `typer.Typer` or a `StageSpec`."""
    own = typer.Typer(rich_markup_mode=None, add_completion=False)
    if isinstance(found, typer.Typer):
        own.add_typer(found, name=name, rich_help_panel=None)
    else:
        own.command(name, **options)(_stage_command(found) if isinstance(found, StageSpec) else found)
    return typer.main.get_group(own).commands[name]


def _package_command(entry: EntryPoint) -> Any:
    """The command of an entry point; if it cannot be made, a command that fails with the reason."""
    try:
        return _made_command(entry.name, loaded(entry))
    except UserError as error:
        flaw = error
    except Exception as error:  # not a function, or one whose parameters cannot be options
        said = f"{type(error).__name__}: {error}"
        flaw = UserError(f"{GROUP}: {entry.name} is {entry.value}, of which no command can be made ({said})")

    @guarded_command
    def fail() -> None:
        raise flaw

    return _made_command(entry.name, fail, help=f"broken: {flaw}", context_settings=_ANY_WORDS)


Option = tuple[str, Any, Any]  # name, annotation, default


def _option(name: str, kind: Any, *words: str, default: Any = None, **settings: Any) -> Option:
    return name, Annotated[kind, typer.Option(*words, **settings)], default


_MAYBE, FILE = int | None, Path | None
_DIVIDED = (
    _option("own_slice", str | None, "--slice", metavar="I/N", help="Only share I of N of the groups."),
    _option("own_workers", _MAYBE, "--workers", min=1, max=4096, help="N processes here, one slice each."),
)
_OWN_OPTIONS = {
    "evaluate": (
        _option(
            *("own_from", FILE, "--from"),
            metavar="FILE",
            help="Judge the answers of this .jsonl or .parquet; play nothing.",
        ),
    ),
    "make-tasks": (
        _option(
            *("own_from", FILE, "--from"),
            help="Data: a folder that holds json_2.1.1, or anything else the environment reads.",
        ),
        _option("own_split", str | None, "--split", help="Only this split."),
        _option("own_limit", _MAYBE, "--limit", min=1, help="At most this many games."),
        _option(
            *("own_curate", FILE, "--curate"),
            metavar="FOLDER",
            help="Keep tasks that the policy of these episodes sometimes solves.",
        ),
    ),
}


def _stage_command(spec: StageSpec) -> Callable[..., None]:
    """The function that typer makes a command of. Its signature is built from the stage table; a stage of a package
    lists its own options in its `StageSpec`.
    """
    brought = [(f"own_{name}", annotation, default) for name, annotation, default in spec.options]
    options = [*(_DIVIDED if spec.divided else ()), *_OWN_OPTIONS.get(spec.name, ()), *brought, *_common_options(spec)]
    for name, artifact in (*spec.reads, *spec.writes):
        verb = "Written" if (name, artifact) in spec.writes else "Read"
        text = f"{verb} here instead of the run's {artifact}."
        options.append(_option(f"path_{name}".replace("-", "_"), FILE, f"--{name}", metavar="PATH", help=text))

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


def _common_options(spec: StageSpec) -> list[Option]:
    follows = any(artifact.startswith("previous_") for _, artifact in spec.reads)  # there is an iteration before it
    first = 0 if spec.name == "evaluate" else 1
    which = "Which iteration, from 1." if follows else "Which iteration; 0 is the warm start."
    own = "the run's config.yaml" if spec.beside else "config.yaml of the --run"
    params = f"Parameters; {own}, else ./params.yaml, else the packaged alfworld-tiny."
    run = f"Run folder; {NEWEST if spec.name in LOOKING else 'runs/<name of the params file>'}."
    replaces = "Replace outputs of other parameters or inputs."
    return [
        _option("params", FILE, help=params),
        _option("run", FILE, help=run),
        _option("iteration", int, min=int(follows), help=which, default=first),
        ("set_", Overrides, None),
        _option("seed", _MAYBE, help="Same as --set seed=N."),
        _option("env", str | None, help="Same as --set env.name=NAME."),
        _option("dry_run", bool, "--dry-run", help="Print config and folders; do nothing.", default=False),
        _option("overwrite", bool, "--overwrite", help=replaces, default=False),
    ]


app = typer.Typer(
    name="rla",
    cls=Commands,
    help="Train a policy, a reward model and the tasks of an environment in one closed loop.",
    epilog="`rla <command> --help` shows an example. `rla init` and `rla run` turn the whole loop.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.command("init")(commands.init_folder)
app.command("run")(commands.run_loop)
app.command("plan")(commands.plan_command)
app.command("envs")(commands.envs)
app.command("params")(commands.params_command)
app.command("prune")(commands.prune)


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the versions and exit.")] = False,
) -> None:
    if version:
        typer.echo("\n".join(f"{name} {number}" for name, number in package_versions().items()))
        raise typer.Exit


_COMMANDS = typer.main.get_command(app)  # takes 10 ms, and a process may make many calls


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit status."""
    try:
        _COMMANDS(args=list(arguments), prog_name="rla")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
