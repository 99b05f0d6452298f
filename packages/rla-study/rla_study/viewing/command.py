"""`rla export` writes a run's episodes for other programs; `rla view` exports new ones for Inspect and shows them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla.cli.guard import NEWEST, Overrides, guard
from rla_study.showing.command import run_and_config

if TYPE_CHECKING:
    from rla.config import Config

INSPECT = "inspect"
PORT = 7575  # Inspect's default
Params = Annotated[
    Path | None, typer.Option(help="Parameters; the run's config.yaml, else ./params.yaml.", show_default=False)
]


def export(
    to: Annotated[
        str, typer.Option(help=f"The program that shows or judges them: {INSPECT}, or one that a package names.")
    ] = INSPECT,
    run: Annotated[Path | None, typer.Option(help=f"Run folder; {NEWEST}.")] = None,
    iteration: Annotated[list[int] | None, typer.Option(min=0, help="Only this one; may be repeated.")] = None,
    split: Annotated[str | None, typer.Option(help="Only evaluations on this held-out split.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Write here instead of <run>/inspect or the package's default path."),
    ] = None,
    params: Params = None,
    set_: Overrides = None,
) -> None:
    """Write episodes as logs of Inspect, one for each iteration and each evaluation. Unchanged logs are kept.

    Any other `--to` writes one evaluation, by default the last, through an installed package (`rla.pipeline`).

    Example: rla export --to inspect --run runs/alfworld-tiny --iteration 3
    """

    def call() -> None:
        from rla.text import counted
        from rla_study.viewing.inspect_folder import export_new

        place, config = run_and_config(run, params, set_)
        if to != INSPECT:
            typer.echo("\n".join(_lines_of_package(to, place, config, iteration or [], split, out)))
            return
        folder = out or exported_folder(place)
        changed = export_new(place, config, folder, iterations=iteration or (), split=split)
        typer.echo("\n".join([*changed, f"{folder}: {counted(len(changed), 'new log')}"]))

    guard(call)


def view(
    run: Annotated[Path | None, typer.Argument(help=f"Run folder; {NEWEST}.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Serve on this port of 127.0.0.1.")] = PORT,
    bundle: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a static site to this new folder instead.")
    ] = None,
    params: Params = None,
    set_: Overrides = None,
) -> None:
    """Show all episodes of a run in Inspect's viewer, even while the run goes on: new ones are added until Ctrl-C.

    Example: rla view runs/alfworld-tiny
    """

    def call() -> None:
        place, config = run_and_config(run, params, set_)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends the server
            _serve_run(place, config, port) if bundle is None else _bundle_run(place, config, bundle)

    guard(call)


def _lines_of_package(
    to: str, run: Path, config: Config, iterations: list[int], split: str | None, out: Path | None
) -> list[str]:
    from rla.errors import UserError
    from rla.pipeline import implementation

    export = implementation(f"export.{to}")
    if len(iterations) > 1:
        raise UserError(f"--iteration: {to} gets one evaluation; name one")
    lines: list[str] = export(run, config, iteration=next(iter(iterations), None), split=split, out=out)
    return lines


def exported_folder(run: Path) -> Path:
    from rla.store.layout import artifact

    return artifact(run, "inspect", 0)


def _bundle_run(run: Path, config: Config, site: Path) -> None:
    from rla_study.viewing.inspect_folder import export_new, new_site, write_site

    new_site(site)
    export_new(run, config, exported_folder(run))
    write_site(exported_folder(run), site)
    typer.echo(f"{site}: a static site; serve it with `python -m http.server --directory {site}`")


def _serve_run(run: Path, config: Config, port: int) -> None:
    """Export, serve, and export again when there is something new."""
    from rla_study.viewing.inspect_folder import Following, export_new
    from rla_study.viewing.inspect_server import HOST, follow, refuse_taken, viewer

    folder = exported_folder(run)
    refuse_taken(port)
    export_new(run, config, folder, waiting=True)
    folder.mkdir(exist_ok=True)  # if there is no log yet
    with viewer(folder, port) as server:
        typer.echo(f"http://{HOST}:{port} shows {run}; Ctrl-C ends it")
        follow(server, Following(run=run, config=config, folder=folder, say=typer.echo))
