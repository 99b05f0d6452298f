"""The commands of the two servers that stages may use: `rla prefork` and `rla serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla.cli.guard import guard

prefork = typer.Typer(help="A server that has imported torch already and forks one child per stage.")
serve = typer.Typer(help="One inference engine for all stages of a run, which take turns with their weights.")


@prefork.command("start")
def prefork_start(
    socket: Annotated[Path, typer.Option(help="Unix socket; its folder must be private to you.")],
    parent: Annotated[int, typer.Option(help="Stop when this process is gone; 0: never.")] = 0,
    idle: Annotated[float, typer.Option(help="Stop after this many idle minutes.")] = 10.0,
) -> None:
    """Start the server in the background. Then call stages with RLA_PREFORK=<socket>."""
    from rla.processes.prefork.control import start_prefork

    guard(lambda: typer.echo(start_prefork(socket, parent=parent, idle_minutes=idle)))


@prefork.command("stop")
def prefork_stop(socket: Annotated[Path, typer.Option(help="Unix socket of the server.")]) -> None:
    """Stop the server; children that still run are ended."""
    from rla.processes.prefork.control import stop_prefork

    guard(lambda: typer.echo(stop_prefork(socket)))


@prefork.command("status")
def prefork_status(socket: Annotated[Path, typer.Option(help="Unix socket of the server.")]) -> None:
    """Say whether the server answers."""
    from rla.processes.prefork.control import prefork_state

    guard(lambda: typer.echo(prefork_state(socket)))


@serve.command("start")
def serve_start(
    socket: Annotated[Path, typer.Option(help="Unix socket; its folder must be private to you.")],
    params: Annotated[Path | None, typer.Option(help="Start only where this file has engine.resident: true.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override of --params.")] = None,
    parent: Annotated[int, typer.Option(help="Stop when this process is gone; 0: never.")] = 0,
    idle: Annotated[float, typer.Option(help="Stop after this many idle minutes.")] = 30.0,
) -> None:
    """Start the server in the background. Then call stages with RLA_ENGINE=<socket>."""
    from rla.config.load import read_config
    from rla.llm.resident_control import start_engine

    def begin() -> None:
        if params is None or read_config(params, set_ or (), params_of=None).engine.resident:
            typer.echo(start_engine(socket, parent=parent, idle_minutes=idle))

    guard(begin)


@serve.command("stop")
def serve_stop(socket: Annotated[Path, typer.Option(help="Unix socket of the server.")]) -> None:
    """Stop the server; stages that use it end with an error, and go on when they are called again."""
    from rla.llm.resident_control import stop_engine

    guard(lambda: typer.echo(stop_engine(socket)))


@serve.command("status")
def serve_status(socket: Annotated[Path, typer.Option(help="Unix socket of the server.")]) -> None:
    """Say whether the server answers."""
    from rla.llm.resident_control import engine_status

    guard(lambda: typer.echo(engine_status(socket)))
