"""The command line: one command per row of `stages.STAGES`, and a few that serve them.

A stage's module is imported only when its command runs, so that `rla --help` stays quick. A UserError becomes
one line on stderr and exit code 2.
"""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread, main_thread
from types import FrameType
from typing import Annotated, Any

import typer

from rla import __version__
from rla.errors import UserError
from rla.processes import rank
from stages import STAGES, StageSpec

app = typer.Typer(
    name="rla",
    help="Train a policy, a reward model and the tasks of an environment in one closed loop.",
    epilog="`rla <command> --help` shows an example. `dvc repro` chains the stages; see dvc.yaml.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
)
prefork = typer.Typer(help="A server that has imported torch already and forks one child per stage.")
app.add_typer(prefork, name="prefork", rich_help_panel=None)
serve = typer.Typer(help="One inference engine for all stages of a run, which take turns with their weights.")
app.add_typer(serve, name="serve", rich_help_panel=None)

Option = tuple[str, Any, Any]  # name, annotation, default


def guard(call: Callable[[], Any]) -> None:
    """Run `call`; errors that the user can mend become exit code 2, an interrupt 130, SIGTERM 143."""
    ended = Event()
    try:
        with terminated_as_interrupted(ended):
            call()
    except UserError as error:
        if rank() == 0:  # of several processes all meet the same
            typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("interrupted: the same command goes on where this one stopped", err=True)
        raise typer.Exit(128 + (signal.SIGTERM if ended.is_set() else signal.SIGINT)) from None


@contextmanager
def terminated_as_interrupted(ended: Event) -> Iterator[None]:
    """Inside, SIGTERM sets `ended` and does what Ctrl-C does: the scheduler cancels its episodes, finished groups
    stay, nothing is left running. Processes of a launcher end as it says.
    """

    def on_terminate(_: int, frame: FrameType | None) -> None:
        ended.set()
        interrupt = signal.getsignal(signal.SIGINT)  # asyncio's own, while it runs
        (interrupt if callable(interrupt) else signal.default_int_handler)(signal.SIGINT, frame)

    if current_thread() is not main_thread() or "WORLD_SIZE" in os.environ:
        yield
        return
    before = signal.signal(signal.SIGTERM, on_terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def common_options(spec: StageSpec) -> list[Option]:
    """What every stage takes."""
    iteration = 0 if spec.name == "evaluate" else 1
    return [
        (
            "params",
            Annotated[Path | None, typer.Option(help="Parameters; ./params.yaml, else the packaged alfworld-tiny.")],
            None,
        ),
        (
            "run",
            Annotated[Path | None, typer.Option(help="Run folder; runs/<name of the params file>.")],
            None,
        ),
        (
            "iteration",
            Annotated[int, typer.Option(min=0, help="Which iteration; 0 is the warm start.")],
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
            Annotated[bool, typer.Option("--overwrite", help="Replace outputs of other settings or inputs.")],
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


DIVIDED: list[Option] = [
    (
        "own_slice",
        Annotated[str | None, typer.Option("--slice", metavar="I/N", help="Only share I of N of the groups.")],
        None,
    ),
    (
        "own_workers",
        Annotated[int | None, typer.Option("--workers", min=1, help="N processes here, one slice each.")],
        None,
    ),
]

OWN_OPTIONS: dict[str, list[Option]] = {
    "rollout": DIVIDED,
    "score-steps": DIVIDED,
    "make-tasks": [
        (
            "own_from",
            Annotated[Path | None, typer.Option("--from", help="ALFWorld data folder (holds json_2.1.1).")],
            None,
        ),
        ("own_split", Annotated[str | None, typer.Option("--split", help="Only this split.")], None),
        (
            "own_export",
            Annotated[Path | None, typer.Option("--export", help="Also write games that the stock engine loads.")],
            None,
        ),
        (
            "own_limit",
            Annotated[int | None, typer.Option("--limit", min=1, help="At most this many games.")],
            None,
        ),
    ],
}


def stage_command(spec: StageSpec) -> Callable[..., None]:
    """The function that typer turns into a command: its signature is built from the stage table."""
    options = [*OWN_OPTIONS.get(spec.name, []), *common_options(spec), *path_options(spec)]

    def command(**values: Any) -> None:
        from rla.calls import call_stage

        guard(lambda: call_stage(spec, values, echo=typer.echo))

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(n, keyword, annotation=a, default=d) for n, a, d in options]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {name: annotation for name, annotation, _ in options}
    command.__doc__ = f"{spec.summary}\n\nExample: {spec.example}"
    return command


for _spec in STAGES:
    app.command(_spec.name)(stage_command(_spec))


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command("plan")
def plan_command(
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of the run in all.")] = 12,
    evaluate_every: Annotated[int, typer.Option(min=0, help="Also evaluate every K iterations; 0: only the ends.")] = 0,
    params: Annotated[Path, typer.Option(help="Parameters that the stages are called with.")] = Path("params.yaml"),
    run: Annotated[Path | None, typer.Option(help="Run folder; runs/<name of the params file>[-seed<N>].")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run; the params' own when not given.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override of every stage.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The file that dvc.yaml reads.")] = Path("iterations.yaml"),
) -> None:
    """Write iterations.yaml: which iterations and evaluations `dvc repro` chains.

    Example: rla plan --iterations 60 --evaluate-every 10
    """
    from rla.plan import Plan, write_plan

    plan = Plan(
        iterations=iterations,
        evaluate_every=evaluate_every,
        params=params,
        run=run,
        seed=seed,
        overrides=set_ or (),
    )
    guard(lambda: typer.echo(write_plan(plan, out)))


@prefork.command("start")
def prefork_start(
    socket: Annotated[Path, typer.Option(help="Unix socket; its folder must be private to you.")],
    parent: Annotated[int, typer.Option(help="Stop when this process is gone; 0: never.")] = 0,
    idle: Annotated[float, typer.Option(help="Stop after this many idle minutes.")] = 10.0,
) -> None:
    """Start the server in the background. Then call stages with RLA_PREFORK=<socket>."""
    from rla.prefork.control import start

    guard(lambda: typer.echo(start(socket, parent=parent, idle_minutes=idle)))


@prefork.command("stop")
def prefork_stop(socket: Annotated[Path, typer.Option(help="Unix socket of the server.")]) -> None:
    """Stop the server; children that still run are ended."""
    from rla.prefork.control import stop

    guard(lambda: typer.echo(stop(socket)))


@prefork.command("status")
def prefork_status(socket: Annotated[Path, typer.Option(help="Unix socket of the server.")]) -> None:
    """Say whether the server answers."""
    from rla.prefork.control import status

    guard(lambda: typer.echo(status(socket)))


@serve.command("start")
def serve_start(
    socket: Annotated[Path, typer.Option(help="Unix socket; its folder must be private to you.")],
    params: Annotated[Path | None, typer.Option(help="Start only where this file has engine.resident: true.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override of --params.")] = None,
    port: Annotated[int, typer.Option(help="Also answer OpenAI-compatible requests on this TCP port.")] = 0,
    model: Annotated[Path | None, typer.Option(help="The checkpoint that --port serves.")] = None,
    parent: Annotated[int, typer.Option(help="Stop when this process is gone; 0: never.")] = 0,
    idle: Annotated[float, typer.Option(help="Stop after this many idle minutes.")] = 30.0,
) -> None:
    """Start the server in the background. Then call stages with RLA_ENGINE=<socket>.

    With --port and --model it always starts, and serves the model at http://127.0.0.1:<port>/v1.
    """
    from rla.config import load_config
    from rla.resident.control import Web, start

    def begin() -> None:
        config = load_config(params, set_ or ())
        if bool(port) != (model is not None):
            raise UserError("--port and --model go together: the port answers for one model")
        web = None if model is None else Web(port=port, model=model, config=config.generator, seed=config.seed)
        if params is None or config.engine.resident or web is not None:
            typer.echo(start(socket, parent=parent, idle_minutes=idle, web=web))

    guard(begin)


@serve.command("stop")
def serve_stop(socket: Annotated[Path, typer.Option(help="Unix socket of the server.")]) -> None:
    """Stop the server; stages that use it end with an error, and go on when they are called again."""
    from rla.resident.control import stop

    guard(lambda: typer.echo(stop(socket)))


@serve.command("status")
def serve_status(socket: Annotated[Path, typer.Option(help="Unix socket of the server.")]) -> None:
    """Say whether the server answers."""
    from rla.resident.control import status

    guard(lambda: typer.echo(status(socket)))


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit status."""
    try:
        app(args=list(arguments), prog_name="rla")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
