"""Commands of the core that are not stages: they start, plan, run and prune a run, or list environments and parameters.

A command imports the code that does its work when it is called, so that `rla --help` stays quick.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rla.cli.guard import NEWEST, Overrides, guarded_command
from rla.errors import UserError
from stages import STAGES

ADVISED = "by default as the comment at the top of the params file advises"
Iterations = Annotated[
    int | None, typer.Option(min=1, max=100_000, help=f"Iterations of the run in all; {ADVISED}, else 12.")
]
EvaluateEvery = Annotated[
    int | None, typer.Option(min=0, help=f"Also evaluate every K iterations; {ADVISED}, else 0: only the ends.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of the run; by default the seed of the parameters.")]
StageOverrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override of every stage.")
]
RunParams = Annotated[Path | None, typer.Option(help="Parameters; the run's config.yaml, else ./params.yaml.")]


@guarded_command
def init_folder(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder; made if it does not exist.")] = Path(),
    pipeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose parameters, else alfworld-tiny; `list` names them all.")
    ] = None,
    env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment, for the pipeline `small`, which runs any.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="FOLDER|ID", help="A chat model: parameters that suit it, and why.")
    ] = None,
    memory: Annotated[
        float | None, typer.Option(min=0.0, help="With --model: GB of the GPU; 0: none. By default this machine's.")
    ] = None,
) -> None:
    """Write dvc.yaml, params.yaml and iterations.yaml into a folder that has none of them.

    Example: rla init mine --pipeline alfworld-tiny
    """
    from rla.pipeline import implementation
    from rla.pipeline.plan import SMALL_RUN, begin_folder, pipelines, recipe_call

    if pipeline == "list":
        broken: list[str] = []
        typer.echo("\n".join(pipelines(broken)))
        for flaw in broken:
            typer.echo(f"left out: {flaw}", err=True)
        return
    if model is None:
        made = begin_folder(folder, pipeline=pipeline or SMALL_RUN, env=env)
    elif pipeline or env:
        raise UserError("--model chooses the pipeline, one of ALFWorld; leave --pipeline and --env out")
    else:
        chosen, changes, reasons = implementation("init.model")(model, memory)
        made = begin_folder(folder, pipeline=chosen, changes=changes, notes=reasons)
        typer.echo("\n".join(reasons))
    typer.echo(f"{folder}: {', '.join(str(path.relative_to(folder)) for path in made)}")
    first = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    typer.echo(f"next: {first}{recipe_call(folder / 'params.yaml')}")


@guarded_command
def plan_command(
    iterations: Iterations = None,
    evaluate_every: EvaluateEvery = None,
    params: Annotated[Path, typer.Option(help="Parameters that the stages are called with.")] = Path("params.yaml"),
    run: Annotated[
        Path | None, typer.Option(help="Run folder; runs/<name of the params file>[-seed<N>][-KEY-VALUE].")
    ] = None,
    seed: Seed = None,
    set_: StageOverrides = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let the stages replace outputs of other parameters.")
    ] = False,
) -> None:
    """Write iterations.yaml: which iterations and evaluations `dvc repro` chains.

    Example: rla plan --iterations 60 --evaluate-every 10
    """
    from rla.pipeline.plan import PLAN, Plan, recommended, write_plan
    from rla.pipeline.run import PIPELINE, ready_dvc
    from rla.store.atomic import lock_outputs

    with lock_outputs([PLAN]):
        iterations, evaluate_every = recommended(params, iterations, evaluate_every)
        sizes: dict[str, Any] = {"iterations": iterations, "evaluate_every": evaluate_every}
        plan = Plan(**sizes, params=params, run=run, seed=seed, overrides=set_ or (), overwrite=overwrite)
        typer.echo(write_plan(plan, PLAN, stages=STAGES)[0])
        if PIPELINE.is_file():
            ready_dvc(Path())


@guarded_command
def run_loop(
    iterations: Iterations = None,
    evaluate_every: EvaluateEvery = None,
    params: Annotated[Path, typer.Option(help="Parameters of all stages.")] = Path("params.yaml"),
    run: Annotated[Path | None, typer.Option(help="Run folder; by default as `rla plan` names it.")] = None,
    seed: Seed = None,
    set_: StageOverrides = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace outputs of other parameters.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="All messages of DVC and of the stages.")] = False,
) -> None:
    """Turn the whole loop here: a line for each stage, then the report. The same call resumes a run that stopped.

    Example: rla run --iterations 4 --set credit.step_weight=0.5
    """
    from rla.metrics.custom import brought  # polars, which the process that forks stages must not import
    from rla.pipeline.plan import PLAN, Plan, recommended, write_plan
    from rla.pipeline.run import PIPELINE, ready_dvc, run_stages
    from rla.store.atomic import lock_outputs

    iterations, evaluate_every = recommended(params, iterations, evaluate_every)
    sizes: dict[str, Any] = {"iterations": iterations, "evaluate_every": evaluate_every}
    asked = Plan(**sizes, params=params, run=run, seed=seed, overrides=set_ or (), overwrite=overwrite)
    if not PIPELINE.is_file():
        raise UserError(f"{PIPELINE}: no such file here; `rla init` writes all that the loop needs")
    with lock_outputs([PLAN]):  # a second call would replace the plan of the first
        said, folder, config = write_plan(asked, PLAN, stages=STAGES)
        typer.echo(said)
        ready_dvc(Path())
        listeners = [one.accompany(asked, folder, config, typer.echo) for one in brought("accompany")]

        def done(stage: str, following: list[str]) -> None:
            for listener in listeners:
                listener(stage, following)

        if status := run_stages(say=typer.echo, verbose=verbose, done=done):
            raise typer.Exit(status)
    print_report(folder, say=typer.echo)
    done("", [])


def print_report(run: Path, *, say: Callable[[str], None]) -> None:
    """Print the report of a run. The files of its stage are not touched, so DVC finds them unchanged."""
    from rla.report.collect import collect
    from rla.report.render import terminal_width, text_of_run
    from rla.report.tables import tables_of_run
    from rla.store.layout import artifact

    summary = collect(run)
    say(text_of_run(summary, tables_of_run(summary), width=terminal_width()).rstrip("\n"))
    say(f"page: {artifact(run, 'report', 0) / 'report.html'}")


@guarded_command
def prune(
    run: Annotated[Path | None, typer.Option(help=f"Run folder; {NEWEST}.")] = None,
    params: RunParams = None,
    set_: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print parts and bytes; remove nothing.")] = False,
) -> None:
    """Remove the weights of old checkpoints, as `checkpoints` says. Records, metrics and all shards stay.

    Example: rla prune --run runs/alfworld-tiny --set checkpoints.keep=2 --dry-run
    """
    from rla.config.load import read_config
    from rla.pipeline.finished import finished_iterations, prune_run
    from rla.pipeline.plan import existing_run, run_and_params
    from rla.text import readable_bytes

    folder, file = run_and_params(run, params, newest=True)
    existing_run(folder)
    config = read_config(file, set_ or [], params_of=None)
    keep = config.checkpoints.keep
    if not keep:
        typer.echo(f"nothing goes: checkpoints.keep is 0 in {file}; give --set checkpoints.keep=2, or set it there")
        return
    finished, reason = finished_iterations(folder)
    found = prune_run(folder, config, dry_run=dry_run)
    verb = "would go" if dry_run else "gone"
    for one in found:
        typer.echo(f"{one.checkpoint}: {', '.join(one.parts)} {verb}, {readable_bytes(one.freed)}")
    state = f"{finished} iterations are finished ({reason}), the last {keep} of them stay"
    typer.echo(f"{len(found)} checkpoints, {readable_bytes(sum(one.freed for one in found))} {verb}; {state}")


@guarded_command
def params_command(
    params: Annotated[Path | None, typer.Option(help="Parameters; ./params.yaml, else the packaged small run.")] = None,
    env: Annotated[
        str | None, typer.Option(help="Same as --set env.name=NAME; with --schema: of this one alone.")
    ] = None,
    set_: Overrides = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="The JSON Schema, with the own parameters of all that is installed.")
    ] = False,
) -> None:
    """Print every parameter with its value, defaults included, as YAML.

    Example: rla params --env alfworld --set env.own.engine=textworld
    """
    import yaml

    from rla.cli.calls import overrides_of
    from rla.config import resolved
    from rla.envs.registry import environment, installed_environments, load_config, schema_of_params
    from rla.pipeline.plan import params_file

    if not schema:
        path = params_file(params, env.partition(":")[0] if env else None)
        config = load_config(path, overrides_of({"set_": set_, "seed": None, "env": env}))
        typer.echo(f"# {path}\n{yaml.safe_dump(resolved(config), sort_keys=False)}", nl=False)
        return
    usable = []
    for name in installed_environments() if env is None else [env]:
        try:
            environment(name)
        except UserError as error:
            typer.echo(f"left out: {error}", err=True)
        else:
            usable.append(name)
    typer.echo(json.dumps(schema_of_params(usable, alone=env is not None), indent=2))


@guarded_command
def envs(
    as_json: Annotated[bool, typer.Option("--json", help="Everything that is known, as JSON.")] = False,
    check: Annotated[
        str | None, typer.Option(metavar="NAME", help="Check this one, or name:id, by playing it; list nothing.")
    ] = None,
    params: Annotated[Path | None, typer.Option(help="Parameters to check it with; the defaults.")] = None,
    set_: Overrides = None,
    episodes: Annotated[int, typer.Option(min=1, help="Tasks that the check plays.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of all random choices of the check.")] = 0,
) -> None:
    """List the installed environments: name, package, and the optional protocols that each has.

    With --check, play one with random and hostile actions and name each part of the contract that is broken, which
    needs a package. Exit code 0: nothing is broken. 1: something is. 2: it cannot be checked here.

    Example: rla envs --check guess-number --episodes 8
    """
    if check is None:
        typer.echo(listed(as_json=as_json), nl=False)
        return
    from rla.cli.calls import overrides_of
    from rla.pipeline import implementation

    check_installed = implementation("envs.check")
    overrides = overrides_of({"set_": set_, "seed": None, "env": check})
    if check_installed(check.partition(":")[0], params, overrides, episodes=episodes, seed=seed):
        raise typer.Exit(1)


def listed(*, as_json: bool) -> str:
    """The installed environments: JSON, or two lines each with name, package and docstring, then the protocols or the
    reason why it cannot be used.
    """
    from rla.envs.registry import installed_list

    found = installed_list()
    if as_json:
        return json.dumps([asdict(one) for one in found], indent=1) + "\n"
    packages = {one.name: f"{one.package} {one.version}".strip() for one in found}
    wide, wider = (max(map(len, column), default=0) for column in (packages, packages.values()))
    text = ""
    for one in found:
        named = ", ".join(one.abilities) or "(the five required members alone)"
        below = " ".join((f"broken: {one.broken}" if one.broken else named).split())
        text += f"{one.name:{wide}}  {packages[one.name]:{wider}}  {one.about}".rstrip() + f"\n{'':{wide + 2}}{below}\n"
    return text
