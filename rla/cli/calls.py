"""One call of one stage: resolve config and folders, run it, print its summary, record how long it took.

The record is `<run>/timings/<iteration>-<stage>.json`. It is outside of every shard, so that equal inputs give equal
outputs on any machine. Besides the seconds of a call it has the command, revisions, versions of packages, and the
machine:

    {"host": "node-3", "devices": [{"gpu": "2", "name": "NVIDIA H200"}], "slice": "3/4"}

`devices` is empty if the stage ran on the CPU or asked a server. Devices of other machines have their host and the
spans of their use (`rla.processes.OTHER_DEVICES`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

import rla
from rla.cli.guard import LOOKING
from rla.cli.progress import make_progress
from rla.config import Config, resolved
from rla.envs.registry import load_config
from rla.errors import UserError
from rla.metrics.guards import GUARDS, Warned, warned
from rla.models.checkpoint import ORIGIN as MODEL_ORIGIN
from rla.pipeline import Progress, StageContext, StageSpec, followers
from rla.pipeline.finished import output_origin, prune_run
from rla.pipeline.plan import default_run, differing_parameters, existing_run, params_file, run_and_params
from rla.plugins import package_versions
from rla.processes import (
    BRIEF,
    LOOP,
    ON_GPUS,
    OTHER_DEVICES,
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
from rla.store.layout import UNTRAINED
from rla.store.manifest import (
    ORIGIN,
    STARTED,
    check_run_version,
    is_complete,
    optional_json,
    read_regular,
    run_config_path,
    update_run_config,
)
from rla.text import duration
from stages import STAGES

STAGE = "DVC_STAGE"  # environment variable of stages that DVC calls
_FINISHING = ("train-policy", "train-rm", "adapt-env", "evaluate")  # any of these may be the last of an iteration
# Sections that `config.yaml` gets from the stages that read them. It gets other sections from every call, except for
# the pool, which concerns one call only.
FOLLOWED = {path.partition(".")[0] for spec in STAGES for path in spec.sections} | {"pool"}
COMPLETE = ("checkpoint.json", "config.json", "report.json")
# Figures of the closing line in brief mode.
FIGURES = ("episodes", "won", "success", "judgements", "mu", "updates", "proposed", "valid", "accepted")

Echo = Callable[[str], None]
Stamps = dict[Path, frozenset[tuple[str, int, int]]]


def call_stage(spec: StageSpec, values: Mapping[str, Any], *, echo: Echo) -> None:
    """Run a stage with the command line's `values`. Raises UserError for errors that the user can fix."""
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
    _prepare_torch(config)
    place = _place_in_loop(spec, values["iteration"])
    with make_progress(place=f"{place}, " if place else "", brief=BRIEF in os.environ) as progress:
        ctx = _context(spec, values, config=config, run=run, progress=progress)
        ends = contextlib.ExitStack()
        for follow in followers(config, "follow_call"):
            ends.callback(follow(ctx))
        before, began = stamps_of(ctx), time.monotonic()
        if speaks():
            from rla.pipeline.origins import slice_of  # brings pyarrow, which `--dry-run` does not need

            part = slice_of(ctx) if spec.divided else WHOLE
            with lock_outputs([ctx.path(option) for option, _ in spec.writes], part):
                summary = _timed(ctx, before)
        else:  # ranks of a launcher write for the call that started them, which holds the locks
            summary = _timed(ctx, before)
        if spec.name in _FINISHING and speaks() and world() == 1:
            prune_run(run, config)
    if speaks():
        echo("\n".join(closing_lines(ctx, summary, before, seconds=time.monotonic() - began)))
        try:
            heed(warnings_of(ctx), config, echo=echo)
        finally:  # also if a warning stops the run
            ends.close()


def _prepare_torch(config: Config) -> None:
    """Set the number of threads, before torch is imported if possible."""
    if count := config.launch.threads:
        os.environ["OMP_NUM_THREADS"] = str(count)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(count)
    if "ACCELERATE_USE_DEEPSPEED" not in os.environ:
        # accelerate imports DeepSpeed if it is installed, and DeepSpeed warns on a CPU that it found no GPU.
        logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)


def closing_lines(ctx: StageContext, summary: Mapping[str, Any], before: Stamps, *, seconds: float) -> list[str]:
    """The last lines of a call: all of `summary`, a line with its inputs, the outputs that it made or found complete,
    and its duration, and the `text` of the summary. In brief mode one line, with figures in place of the inputs.
    """
    brief, now = BRIEF in os.environ, {path: stamp for path, stamp in stamps_of(ctx).items() if _is_complete(path)}
    read = dict.fromkeys(path for option, _ in ctx.spec.reads if (path := ctx.path(option)).exists())
    paths = {
        "read": [] if brief else list(read),
        "made": [path for path, stamp in now.items() if stamp != before.get(path)],
        "kept": [path for path, stamp in now.items() if stamp == before.get(path)],
    }
    named = {
        verb: ", ".join(str(path.relative_to(ctx.run) if path.is_relative_to(ctx.run) else path) for path in found)
        for verb, found in paths.items()
    }
    said = "; ".join(f"{verb} {names}" for verb, names in named.items() if names)
    spent = f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
    place = _place_in_loop(ctx.spec, ctx.iteration)
    line = " ".join(filter(None, (place and f"{place}:", ctx.spec.name, said, f"in {spent}")))
    if brief:
        figures = ", ".join(f"{key} {readable(summary[key])}" for key in FIGURES if key in summary)
        return [f"{line}; {figures}" if figures else line]
    lines = [f"{key}: {readable(value)}" for key, value in summary.items() if key != "text"]
    return [*lines, line, *([str(summary["text"]).rstrip("\n")] if "text" in summary else [])]


def _place_in_loop(spec: StageSpec, iteration: int) -> str:
    """`iteration 7 of 12`; empty outside of a loop, and for a stage that iterations share."""
    return f"iteration {iteration} of {os.environ[LOOP]}" if LOOP in os.environ and spec.looped else ""


def readable(value: Any) -> str:
    """One line for a summary value; floats to four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {readable(item)}" for key, item in value.items())
    return str(value)


def warnings_of(ctx: StageContext) -> list[Warned]:
    """Warnings of the stage's guards about its iteration; empty if options name folders outside of the run."""
    if ctx.paths or ctx.spec.name not in GUARDS:
        return []
    from rla.report.collect import iteration_row  # brings numpy and pyarrow

    first = iteration_row(ctx.run, 1)
    figures = first if ctx.iteration == 1 else iteration_row(ctx.run, ctx.iteration)
    return list(warned(figures, first, ctx.config, stage=ctx.spec.name))


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


def _timed(ctx: StageContext, before: Stamps) -> dict[str, Any]:
    """Run the stage and add this call to its record of times, which starts anew if there was no output `before`.

    If the stage made outputs of the run, the parameters that it read are written to `config.yaml`.
    """
    part = {"slice": ctx.options["slice"]} if "slice" in ctx.options else {}
    suffix = f"-slice-{part['slice'].replace('/', '-of-')}" if part else ""
    untrained = ctx.spec.name == "evaluate" and ctx.path("out").is_relative_to(ctx.run / UNTRAINED)
    name = f"{ctx.spec.name}-untrained" if untrained else ctx.spec.name  # next to the evaluation of iteration 0
    record = ctx.run / "timings" / f"{ctx.iteration}-{name}{suffix}.json"
    calls = earlier_calls(record) if before else []
    started, clock = datetime.now(UTC), time.perf_counter()
    has_config = run_config_path(ctx.run).exists()
    try:
        summary: dict[str, Any] = import_module(ctx.spec.module).run(ctx)
    except UserError:
        if not has_config:  # a run does not keep parameters that were refused
            run_config_path(ctx.run).unlink(missing_ok=True)
        raise
    if not speaks() or not ctx.writes_into_run:
        return summary
    now = stamps_of(ctx)
    folders = {path for path in now if path.is_dir()}  # other outputs of such a stage are written again by every call
    calls.append(
        {
            "started": started.isoformat(timespec="milliseconds"),
            "seconds": round(time.perf_counter() - clock, 3),
            **({"figures": ctx.measured} if ctx.measured else {}),
            "made": any(now[path] != before.get(path) for path in folders or now),
            "origin": _origin_digits(ctx),
            "host": socket.gethostname(),
            "devices": [*used_gpus(ctx), *(one for taken in OTHER_DEVICES for one in taken())],
            **part,
            **call_facts(),
        }
    )
    if ctx.spec.sections and not ctx.spec.beside:
        data = resolved(ctx.config)
        update_run_config(ctx.run, data, [*ctx.spec.sections, *(name for name in data if name not in FOLLOWED)])
    write_json(record, {"stage": name, "iteration": ctx.iteration, "calls": calls})
    return summary


def earlier_calls(record: Path) -> list[Any]:
    """The calls in a record of times; empty if it is damaged, because no output depends on it."""
    try:
        return list(json.loads(read_regular(record))["calls"])
    except (OSError, UserError, ValueError, KeyError, TypeError):
        return []


def _description(ctx: StageContext, params: Path) -> str:
    """The text of `--dry-run`: the stage's part of the config, then its folders and their state."""
    sections = resolved(ctx.config, ctx.spec.sections) if ctx.spec.sections else {}
    lines = [f"# {ctx.spec.name}, iteration {ctx.iteration}, params {params}, run {ctx.run}"]
    lines += [yaml.safe_dump(sections, sort_keys=False).rstrip()] if sections else []
    for verb, options in (("reads ", ctx.spec.reads), ("writes", ctx.spec.writes)):
        for option, _ in options:
            path = ctx.path(option)
            state = "complete" if _is_complete(path) else "incomplete" if path.exists() else "absent"
            lines.append(f"{verb}  --{option} {path}: {state}")
    return "\n".join(lines)


def _is_complete(path: Path) -> bool:
    return path.is_file() or is_complete(path) or any((path / name).exists() for name in COMPLETE)


def call_facts() -> dict[str, Any]:
    """Command line, versions, and two git revisions: of rla's source if it is in a repository, and of the repository of
    the working folder, or null.
    """
    own = _own_revision(Path(rla.__file__))
    facts = {"project_revision": git_revision(Path()), "versions": package_versions()}
    return {"command": shlex.join(["rla", *sys.argv[1:]]), **({"revision": own} if own else {}), **facts}


@cache  # a later commit does not change the code that is imported
def _own_revision(source: Path) -> str | None:
    return git_revision(source.parent, file=source.name)  # an installed package may lie inside of another repository


def git_revision(folder: Path, *, file: str = "") -> str | None:
    """The commit of the folder's repository, with `-dirty` if tracked files differ from it. None without a repository,
    or if it does not track `file`.
    """
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    commands = [["ls-files", "--error-unmatch", file]] * bool(file)
    try:
        for words in [*commands, ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]]:
            said = subprocess.check_output([*git, *words], stderr=subprocess.DEVNULL, text=True, timeout=5.0)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return said.strip() or None


def stamps_of(ctx: StageContext) -> Stamps:
    """For each output that exists, a value that changes if a call makes it or a part of it again."""
    found = {}
    for path in (ctx.path(option) for option, _ in ctx.spec.writes):
        if path.exists():
            # Hidden files are temporary: another slice may rename one before `lstat`.
            files = (
                [one for one in path.iterdir() if not one.name.startswith((".", STARTED))] if path.is_dir() else [path]
            )
            stats = [(file.name, file.lstat()) for file in files if not file.is_dir()]
            found[path] = frozenset((name, stat.st_ino, stat.st_mtime_ns) for name, stat in stats)
    return found


def _origin_digits(ctx: StageContext) -> str | None:
    """16 hex digits that change with the origin of the stage's outputs; None if they do not record it."""
    places = [path for option, _ in ctx.spec.writes if (path := ctx.path(option)).is_dir()]
    records = [output_origin(path) or optional_json(path / MODEL_ORIGIN) for path in places]
    known = [{key: record.get(key) for key in ORIGIN} for record in records if record]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16] if known else None


def used_gpus(ctx: StageContext) -> list[dict[str, str]]:
    """The GPUs of this machine that the call used: their name in CUDA_VISIBLE_DEVICES with the beginning of their UUID,
    because every task of a job may call its GPU 0, and the name of their model.
    """
    config, name = ctx.config, ctx.spec.name
    asks = "generator" in ctx.spec.sections and config.generator.backend in ON_GPUS
    asks &= name != "adapt-env" or (config.adaptation.proposer == "llm" and not config.adaptation.llm.server)
    asks &= name != "score-steps" or (config.judge.enabled and config.judge.trains)
    most: int | None = 0  # None: all that can be seen
    if name in ("train-policy", "train-rm") and config.launch.training:
        most = 0 if config.launch.own is not None else None
    elif name in ("warm-start", "train-policy", "train-rm"):
        most = world()
    elif asks:
        alone = "slice" in ctx.options
        workers = 1 if alone else int(ctx.options.get("workers") or workers_of(config.generator))
        most = gpus_each(config.generator) * workers
    if most == 0:
        return []
    described = [gpu_and_model(gpu, index) for index, gpu in enumerate(visible_gpus()[:most])]
    return [{"gpu": gpu, "name": model} for gpu, model in described]
