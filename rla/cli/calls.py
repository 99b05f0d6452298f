"""One call of one stage: resolve config and folders, run it, print its summary, note how long it took.

Times are kept in `<run>/timings/<iteration>-<stage>.json`, outside of every shard: outputs of equal inputs
stay equal. So are the command, the revision of the code and the versions of packages (`rla.cli.call_record`).
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from rla.cli.own_options import LOOKING
from rla.config import Config, resolved
from rla.envs.configured import load_config
from rla.errors import UserError
from rla.metrics.guards import GUARDS, Warned, warned
from rla.pipeline.context import Progress, StageContext, StageSpec
from rla.pipeline.params_files import default_run, existing_run, params_file, run_and_params
from rla.pipeline.pruning import prune_run
from rla.pipeline.run_identity import differing_parameters
from rla.processes.ranks import speaks, world
from rla.processes.workers import WATCH, end_with_stdin
from rla.store.atomic import write_json
from rla.store.record import is_complete, read_regular
from rla.store.run_config import check_run_version, run_config_path, update_run_config
from rla.store.slices import WHOLE, lock_outputs
from rla.tracking.trackers import refuse_missing
from stages import STAGES

STAGE = "DVC_STAGE"  # DVC sets it for the commands of its stages
FINISHING = ("train-policy", "train-rm", "adapt-env", "evaluate")  # any of these may be the last of an iteration
# Sections that a stage reads; all others are as in the last call, but for the pool, which is the matter of one call.
FOLLOWED = {path.partition(".")[0] for spec in STAGES for path in spec.sections} | {"pool"}
COMPLETE = ("checkpoint.json", "config.json", "report.json")

Echo = Callable[[str], None]


def call_stage(spec: StageSpec, values: Mapping[str, Any], *, echo: Echo) -> None:
    """Run `spec` with the command line's `values`. Raises UserError for anything that the user can mend."""
    from rla.cli.progress import BRIEF, LOOP, StageAccount, make_progress, place_in_loop

    own = not {WATCH, STAGE, LOOP} & os.environ.keys()  # a user's, not that of a loop or of another call
    end_with_stdin()
    run, params = called_on(spec, values)
    if spec.name in LOOKING and not values["dry_run"]:
        existing_run(run)  # before a lock makes the folder
    check_run_version(run)
    config = load_config(params, overrides_of(values))
    if own and speaks() and spec.sections:
        for note in differing_parameters(run, config, spec.sections, read=params):
            echo(note)
    if not values["dry_run"]:
        quiet_libraries()
        place = place_in_loop(spec, values["iteration"])
        with make_progress(place=f"{place}, " if place else "", brief=BRIEF in os.environ) as progress:
            ctx = context(spec, values, config=config, run=run, progress=progress)
            check_trackers(ctx)
            account = StageAccount(ctx=ctx)
            with locked_outputs(ctx):
                summary = timed(ctx)
            if spec.name in FINISHING and speaks() and world() == 1:
                prune_run(run, config)
        if speaks():
            echo("\n".join(account.told(summary)))
            try:
                heed(warnings_of(ctx), config, echo=echo)
            finally:
                show_curves(ctx)  # those of a run that a warning stops, too
        return
    ctx = context(spec, values, config=config, run=run, progress=make_progress())
    echo(describe_call(ctx, params))


def locked_outputs(ctx: StageContext) -> AbstractContextManager[None]:
    """Nobody else writes the outputs of this call meanwhile. Ranks of a launcher write for the call that started it."""
    if not speaks():
        return nullcontext()
    from rla.pipeline.dividing import slice_of  # brings pyarrow, which `--dry-run` has no need of

    part = slice_of(ctx) if ctx.spec.divided else WHOLE
    return lock_outputs([ctx.path(option) for option, _ in ctx.spec.writes], part)


def called_on(spec: StageSpec, values: Mapping[str, Any]) -> tuple[Path, Path]:
    """The run of a call and its params file: of a run that is named, or of a stage beside the loop, the run's own."""
    if spec.beside or values["run"]:
        return run_and_params(values["run"], values["params"], values["env"], newest=spec.name in LOOKING)
    params = params_file(values["params"], values["env"].partition(":")[0] if values["env"] else None)
    return default_run(params, values["env"]), params


def warnings_of(ctx: StageContext) -> list[Warned]:
    """What the guards of the stage say of its iteration, where its outputs lie in the run."""
    if ctx.paths or ctx.spec.name not in {guard.stage for guard in GUARDS}:
        return []
    from rla.report.collect import iteration_row, setting_of  # bring numpy and pyarrow, which `--dry-run` does not need

    first = iteration_row(ctx.run, 1)
    figures = first if ctx.iteration == 1 else iteration_row(ctx.run, ctx.iteration)
    return list(warned(figures, first, setting_of(ctx.config), stage=ctx.spec.name))


def heed(found: Sequence[Warned], config: Config, *, echo: Echo) -> None:
    """Print warnings. UserError where one of them is to stop the run."""
    for warning in found:
        echo(str(warning))
    stopping = [warning for warning in found if warning.guard in config.guards.stop]
    if stopping:
        raise UserError(f"guards.stop: {stopping[0].said}; {stopping[0].remedy}")


def overrides_of(values: Mapping[str, Any]) -> list[str]:
    """`--set`, `--seed` and `--env` as key=value texts; `--env name:id` also names one of the environment's own."""
    overrides = list(values["set_"] or ())
    if values["seed"] is not None:
        overrides.append(f"seed={values['seed']}")
    if values["env"] is not None:
        name, colon, own = values["env"].partition(":")
        overrides.append(f"env.name={json.dumps(name)}")
        overrides += [f"env.own.id={json.dumps(own)}"] if colon else []
    return overrides


def context(
    spec: StageSpec, values: Mapping[str, Any], *, config: Config, run: Path, progress: Progress
) -> StageContext:
    names = [name for name, _ in (*spec.reads, *spec.writes)]
    given = {name: values[f"path_{name}".replace("-", "_")] for name in names}
    own = {key.removeprefix("own_"): value for key, value in values.items() if key.startswith("own_")}
    ctx = StageContext(
        spec=spec,
        stages=STAGES,
        config=config,
        run=run,
        iteration=values["iteration"],
        progress=progress,
        paths={name: path for name, path in given.items() if path is not None},
        options={key: value for key, value in own.items() if value is not None},
        overwrite=values["overwrite"],
    )
    for place in (run, *(ctx.path(option) for option, _ in spec.writes)):
        refuse_dangling(place)
    return ctx


def refuse_dangling(place: Path) -> None:
    """UserError where outputs would go through a link that names nothing: no folder can be made there."""
    if place.is_symlink() and not place.exists():
        raise UserError(f"{place}: a link to {place.readlink()}, which is not there; make that or remove the link")


def timed(ctx: StageContext) -> dict[str, Any]:
    """Run the stage and add this call to its times; a call that finds no output starts them anew.

    Where it made outputs of the run, `config.yaml` then says the parameters that it read.
    """
    from rla.cli.call_record import call_facts, machine_facts, origin_digits, output_stamps

    part = f"-slice-{ctx.options['slice'].replace('/', '-of-')}" if "slice" in ctx.options else ""
    record = ctx.run / "timings" / f"{ctx.iteration}-{ctx.spec.name}{part}.json"
    resumed = any(ctx.path(option).exists() for option, _ in ctx.spec.writes)
    calls, before = earlier_calls(record) if resumed else [], output_stamps(ctx)
    started, clock = datetime.now(UTC), time.perf_counter()
    has_config = run_config_path(ctx.run).exists()
    try:
        summary: dict[str, Any] = import_module(ctx.spec.module).run(ctx)
    except UserError:
        if not has_config:  # parameters that were refused are not those of the run
            run_config_path(ctx.run).unlink(missing_ok=True)
        raise
    seconds = round(time.perf_counter() - clock, 3)
    if speaks():
        done = {"made": output_stamps(ctx) != before, "origin": origin_digits(ctx)}
        measured = {"figures": ctx.measured} if ctx.measured else {}
        spent = {"started": started.isoformat(timespec="milliseconds"), "seconds": seconds, **measured}
        calls.append({**spent, **done, **machine_facts(ctx), **call_facts()})
        if ctx.spec.sections and not ctx.spec.beside and ctx.writes_into_run:
            now = resolved(ctx.config)
            update_run_config(ctx.run, now, [*ctx.spec.sections, *(name for name in now if name not in FOLLOWED)])
        if ctx.writes_into_run:
            write_json(record, {"stage": ctx.spec.name, "iteration": ctx.iteration, "calls": calls})
    return summary


def earlier_calls(record: Path) -> list[Any]:
    """The calls that a record of times has; of a damaged one none, since no output depends on it."""
    try:
        return list(json.loads(read_regular(record))["calls"])
    except (OSError, UserError, ValueError, KeyError, TypeError):
        return []


def describe_call(ctx: StageContext, params: Path) -> str:
    """What `--dry-run` prints: the stage's part of the config, then its folders and their state."""
    import yaml

    sections = resolved(ctx.config, ctx.spec.sections) if ctx.spec.sections else {}
    lines = [f"# {ctx.spec.name}, iteration {ctx.iteration}, params {params}, run {ctx.run}"]
    lines += [yaml.safe_dump(sections, sort_keys=False).rstrip()] if sections else []
    lines += [f"reads   --{option} {ctx.path(option)}: {state(ctx.path(option))}" for option, _ in ctx.spec.reads]
    lines += [f"writes  --{option} {ctx.path(option)}: {state(ctx.path(option))}" for option, _ in ctx.spec.writes]
    return "\n".join(lines)


def state(path: Path) -> str:
    """complete, incomplete or absent."""
    if path.is_file() or is_complete(path) or any((path / name).exists() for name in COMPLETE):
        return "complete"
    return "incomplete" if path.exists() else "absent"


def quiet_libraries() -> None:
    """DeepSpeed says only errors unless a launcher asks for it: accelerate imports it wherever it is installed, and it
    warns of a missing GPU on a CPU.
    """
    if "ACCELERATE_USE_DEEPSPEED" not in os.environ:
        logging.getLogger("DeepSpeed").addFilter(is_error)


def is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


# What gives an iteration its figures, and what may be the last of it.
TRACKED = ("compute-rewards", "adapt-env", "train-rm", "evaluate")


def is_tracked(ctx: StageContext) -> bool:
    """Not where options name other folders than those of the run, nor where several calls share a stage."""
    return bool(ctx.config.tracking.trackers) and ctx.spec.name in TRACKED and not (ctx.paths or "slice" in ctx.options)


def check_trackers(ctx: StageContext) -> None:
    """UserError where the package of a tracker is missing, before the stage works."""
    for name in ctx.config.tracking.trackers if is_tracked(ctx) else ():
        refuse_missing(name)


def show_curves(ctx: StageContext) -> None:
    """The stage has done its work: a damaged file of another iteration, a full disk or a service out of reach is said
    and stops nothing.
    """
    if not is_tracked(ctx):
        return
    from rla.report.series import run_points
    from rla.tracking.run_curves import track_run

    try:
        track_run(ctx.run, run_points(ctx.run), resolved(ctx.config), ctx.config.tracking)
    except (UserError, OSError) as error:
        ctx.progress.note(f"no curves: {error}")
