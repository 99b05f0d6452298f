"""`rla plan-memory`: memory, disk, tokens and time of a run before it starts, from shapes and parameters only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla.cli.guard import Overrides, guard

if TYPE_CHECKING:
    from rla.config import Config
    from rla_study.planning.plan import Machine, Models, StageNeed
    from rla_study.planning.shapes import ModelShape
    from rla_study.planning.work import Guesses


def plan_memory(
    shape: Annotated[str | None, typer.Option(help="The policy: a name, such as qwen2.5-7b, or its folder.")] = None,
    reward_shape: Annotated[str | None, typer.Option(help="The reward model, if it is another model.")] = None,
    proposer_shape: Annotated[
        str | None, typer.Option(help="The model of adaptation.llm, if it is another model.")
    ] = None,
    params: Annotated[
        Path | None, typer.Option(help="Parameters; the packaged pipelines/alfworld-<shape>.yaml, else params.yaml.")
    ] = None,
    set_: Overrides = None,
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of the run, for its disk space.")] = 200,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of the machine; 0: CPU only.")] = 8,
    gpu_memory: Annotated[float, typer.Option(help="Memory of each GPU, in GB.")] = 80.0,
    host_memory: Annotated[float, typer.Option(help="Memory of the machine, in GB.")] = 1000.0,
    disk: Annotated[float, typer.Option(help="Free space, in GB; 0: do not refuse because of it.")] = 0.0,
    tflops: Annotated[
        float | None,
        typer.Option(help="TFLOP/s of a large matrix product: 400 on a GPU, 0.03 on a core of this CPU."),
    ] = None,
    training_share: Annotated[float, typer.Option(help="Share of that rate for training and prompts.")] = 0.4,
    decoding_share: Annotated[float, typer.Option(help="Share of that rate for sampled tokens.")] = 0.05,
    prompt_tokens: Annotated[int, typer.Option(help="Guess: the first prompt of an episode.")] = 1000,
    observation_tokens: Annotated[int, typer.Option(help="Guess: an observation.")] = 100,
    reply_share: Annotated[float, typer.Option(help="Guess: average reply, as a share of max_tokens.")] = 0.25,
    steps_share: Annotated[float, typer.Option(help="Guess: average episode, as a share of env.max_steps.")] = 0.5,
    held_out: Annotated[int, typer.Option(help="Guess: held-out tasks, if evaluation.tasks is 0.")] = 140,
) -> None:
    """Print the needs of a run: GPU and host memory, tokens and time of every stage, and disk. Refuse a run that cannot
    fit.

    Example: rla plan-memory --shape qwen2.5-7b --gpus 8
    """

    def call() -> None:
        from rla.errors import UserError
        from rla.processes import usable_cores
        from rla_study.planning.plan import Machine
        from rla_study.planning.work import Guesses

        on_gpu, on_core = 400.0, 0.03  # bf16 of an H100, with some reserve; fp32 of a core with AVX-512
        rate = tflops or (on_gpu if gpus else on_core * usable_cores())
        machine = Machine(
            gpus=gpus,
            gpu_bytes=gpu_memory * 1e9,
            host_bytes=host_memory * 1e9,
            flops=rate * 1e12,
            training_share=training_share,
            decoding_share=decoding_share,
        )
        guesses = Guesses(
            prompt=prompt_tokens,
            observation=observation_tokens,
            reply=reply_share,
            steps=steps_share,
            held_out=held_out,
        )
        file = _params_of_shape(params, shape)
        config, models = configured_models(file, set_ or [], shape, reward_shape, proposer_shape)
        text, refusals = _plan_text(
            config, models, machine, guesses, title=str(file), iterations=iterations, free=disk * 1e9
        )
        typer.echo(text, nl=False)
        if refusals:
            raise UserError(f"{file}: {refusals[0]}")

    guard(call)


def _params_of_shape(params: Path | None, shape: str | None) -> Path:
    """The file given, else the published one of that shape, else ./params.yaml or the packaged small run."""
    from rla.pipeline.plan import params_file
    from rla.store.layout import resource

    published = resource("pipelines") / f"alfworld-{shape}.yaml"
    return published if params is None and shape and published.is_file() else params_file(params)


def configured_models(
    file: Path, overrides: list[str], shape: str | None, reward: str | None, proposer: str | None
) -> tuple[Config, Models]:
    """The parameters, and the shapes of their models: as given, else by the names in the parameters."""
    from rla.config.load import read_config

    config = read_config(file, overrides, params_of=None)
    return config, models_of(config, shape, reward, proposer, where=f"{file}: ")


def models_of(
    config: Config,
    shape: str | None = None,
    reward: str | None = None,
    proposer: str | None = None,
    *,
    where: str = "",
) -> Models:
    """The shapes of the models. Raises UserError, prefixed with `where`, for a model of unknown size."""
    from rla_study.planning.plan import Models
    from rla_study.planning.shapes import model_shape_of

    own, llm = config.model, config.adaptation
    policy = model_shape_of(shape or own.policy, new=own, key=f"{where}model.policy", option="--shape")

    def other(given: str | None, named: str, key: str, option: str) -> ModelShape:
        if given is None and named in ("", own.policy):
            return policy
        return model_shape_of(given or named, new=own, key=f"{where}{key}", option=option)

    proposes = llm.enabled and llm.proposer == "llm" and not llm.llm.server
    return Models(
        policy=policy,
        reward=other(reward, own.reward, "model.reward", "--reward-shape"),
        proposer=other(proposer, llm.llm.model, "adaptation.llm.model", "--proposer-shape") if proposes else None,
    )


def _plan_text(
    config: Config,
    models: Models,
    machine: Machine,
    guesses: Guesses,
    *,
    title: str,
    iterations: int,
    free: float,
) -> tuple[str, list[str]]:
    """The tables, and the reasons why the plan is impossible, an empty list if there are none."""
    from rla.envs.protocols import Probes
    from rla.envs.registry import environment
    from rla.report.render import as_text, terminal_width
    from rla_study.planning.plan import stage_needs
    from rla_study.planning.tables import disk_refusal, disk_table, model_table, planned_disk, stage_table

    by_task = config.env.name is not None and isinstance(environment(config.env.name), Probes)
    needs: list[StageNeed] = list(stage_needs(config, models, machine, guesses, by_task=by_task))
    disk = planned_disk(config, models, needs, iterations=iterations)
    tables = [
        model_table(config, models),
        stage_table(needs, machine, guesses),
        disk_table(disk, config.checkpoints, iterations=iterations),
    ]
    refusals = [one.refusal for one in needs if one.refusal] + disk_refusal(disk, config.checkpoints, free)
    return as_text(f"Plan of {title}", tables, width=terminal_width()), refusals
