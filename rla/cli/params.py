"""`rla params`: the parameters of a run as they are resolved, or the JSON Schema of a params file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rla.cli.guard import guard


def params_command(
    params: Annotated[Path | None, typer.Option(help="Parameters; ./params.yaml, else the packaged small run.")] = None,
    env: Annotated[
        str | None, typer.Option(help="Same as --set env.name=NAME; with --schema: of this one alone.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one parameter.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="The JSON Schema, with the own parameters of all that is installed.")
    ] = False,
) -> None:
    """Print every parameter with its value, defaults included, as YAML.

    Example: rla params --env alfworld --set env.own.engine=textworld
    """
    guard(lambda: typer.echo(schema_text(env) if schema else resolved_text(params, env, set_ or []), nl=False))


def schema_text(env: str | None = None) -> str:
    """The schema of a params file, with the own parameters of `env`, or of all that are installed. One that cannot be
    imported is left out.
    """
    from rla.envs.configured import schema_of_params
    from rla.envs.registry import environment, installed_environments
    from rla.errors import UserError

    usable = []
    for name in installed_environments() if env is None else [env]:
        try:
            environment(name)
        except UserError as error:
            typer.echo(f"left out: {error}", err=True)
        else:
            usable.append(name)
    return json.dumps(schema_of_params(usable), indent=2) + "\n"


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
