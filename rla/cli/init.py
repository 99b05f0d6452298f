"""`rla init`: an empty folder becomes one in which `rla run` turns the loop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla.cli.guard import guard


def init_folder(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The folder; it is made where it is not there.")
    ] = Path(),
    pipeline: Annotated[
        str, typer.Option(metavar="NAME", help="Whose parameters; `list` names the pipelines.")
    ] = "alfworld-tiny",
    env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment, for the pipeline `small`, which runs any.")
    ] = None,
) -> None:
    """Write dvc.yaml, params.yaml and iterations.yaml into a folder that has none of them.

    Example: rla init mine --pipeline coding-tiny
    """

    def call() -> None:
        from rla.pipeline.new_folder import begin_folder, pipelines

        if pipeline == "list":
            broken: list[str] = []
            typer.echo("\n".join(pipelines(broken)))
            for flaw in broken:
                typer.echo(f"left out: {flaw}", err=True)
            return
        made = begin_folder(folder, pipeline=pipeline, env=env)
        typer.echo(f"{folder}: {', '.join(str(path.relative_to(folder)) for path in made)}")
        first = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
        typer.echo(f"next: {first}rla run")

    guard(call)
