"""`rla prefork`: the server that forks stages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla.cli.guard import guard

prefork = typer.Typer(help="A server that has imported torch already and forks one child per stage.")


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
