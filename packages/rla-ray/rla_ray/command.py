"""`rla engines`: list, start and stop the engines on a Ray cluster (`generator.backend: ray`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rla.cli.guard import guard

engines = typer.Typer(help="Engines on a Ray cluster, which stay loaded between stages.")

Address = Annotated[str, typer.Option(help="The cluster's head, host:port; auto: the cluster of this machine.")]


@engines.command("list")
def list_engines(address: Address = "auto") -> None:
    """List the engines with their nodes and states."""
    from rla_ray.connection import connected
    from rla_ray.engines.cluster import engine_states, known_engines

    def listed() -> None:
        ray = connected(address)
        found = engine_states(ray, known_engines(ray))
        for name, state in found.items():
            typer.echo(f"{name}: {_engine_line(state)}")
        if not found:
            typer.echo("no engine runs on the cluster; the first stage with generator.backend: ray starts them")

    guard(listed)


def _engine_line(state: dict[str, Any] | None) -> str:
    """The line that describes an engine; None stands for an engine that does not answer."""
    if state is None:
        return "does not answer"
    doing = "asleep" if state["asleep"] else f"{state['stages']} stages, {state['requests']} requests"
    models = f", {', '.join(state['models'])}" if state["models"] else ""
    return f"process {state['process']} of {state['host']}, {doing}{models}, {state['answered']} answered"


@engines.command("start")
def start_engines(
    model: Annotated[Path, typer.Option(help="The checkpoint or model folder to load.")],
    params: Annotated[Path | None, typer.Option(help="Parameters; default: ./params.yaml if it exists.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one parameter.")
    ] = None,
) -> None:
    """Start the engines that a stage would start and load weights, so that the stage finds them warm."""

    def started() -> None:
        from rla.config.load import read_config
        from rla.errors import UserError
        from rla.llm.factory import make_generator
        from rla.models.checkpoint import model_folder

        config = read_config(params, set_ or (), params_of=None)
        if config.generator.backend != "ray":
            raise UserError(
                f"generator.backend is {config.generator.backend}; `rla engines start` is for ray: add "
                "--set generator.backend=ray"
            )
        generator, _ = make_generator(config.generator, model=model_folder(model), seed=config.seed)
        generator.close()
        list_engines(config.generator.own.address)

    guard(started)


@engines.command("stop")
def stop_engines(address: Address = "auto") -> None:
    """End all engines of the cluster. Stages that use them wait; the next stage that needs engines starts new ones."""
    from rla_ray.connection import connected
    from rla_ray.engines.cluster import ended_engines

    def stopped() -> None:
        for name in ended_engines(connected(address)):
            typer.echo(f"{name}: ended")

    guard(stopped)
