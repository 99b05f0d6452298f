"""`rla env serve`: an environment as an OpenEnv server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla.cli.guard import Overrides, guard

env = typer.Typer(help="An environment as a server that other trainers can use.")


@env.callback()
def env_group() -> None:
    """Serve an environment to other trainers."""


@env.command("serve")
def env_serve(
    name: Annotated[
        str | None,
        typer.Option("--env", metavar="NAME", help="The environment; default: the pool's, or the one in the params."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0: any that is free.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine's own need RLA_ENV_TOKEN.")
    ] = "127.0.0.1",
    params: Annotated[
        Path | None, typer.Option(help="Parameters; ./params.yaml, else the packaged small run of the environment.")
    ] = None,
    set_: Overrides = None,
    seed: Annotated[int | None, typer.Option(help="Same as --set seed=N.")] = None,
    split: Annotated[str | None, typer.Option(help="Only this split; all of them when not given.")] = None,
    pool: Annotated[
        Path | None, typer.Option(help="Tasks of this pool, such as runs/x/5/pool; else the environment's own.")
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, help="Connections at once; each has an environment of its own.")] = 64,
    idle: Annotated[float, typer.Option(help="End a session after this many minutes without a message.")] = 60.0,
) -> None:
    """Serve an environment's tasks by the OpenEnv protocol, for TRL, verifiers or SkyRL.

    Example: rla env serve --env alfworld --port 8000 --pool runs/alfworld-tiny/5/pool
    """

    def call() -> None:
        from rla.cli.calls import overrides_of
        from rla.envs.registry import load_config
        from rla.pipeline.plan import params_file
        from rla_bridges.serving.launching import ServingOptions, environment_of_pool, serve_env

        chosen = name or (environment_of_pool(pool) if pool is not None else None)
        overrides = overrides_of({"set_": set_, "seed": seed, "env": chosen})
        config = load_config(params_file(params, chosen.partition(":")[0] if chosen else None), overrides)
        options = ServingOptions(host=host, port=port, split=split, pool=pool, sessions=sessions, idle=idle)
        serve_env(config, options, tell=typer.echo)

    guard(call)
