"""The files around a run: its folder, its parameters, and its plan.

A package registers a folder of params files, a `Path`, in the entry-point group `rla.pipelines`. `rla init --pipeline`
offers those that name an environment, and `--env dice` reads the file `dice-tiny`. If two files have the same name, the
core's counts.

`rla init` writes the files of a loop into a folder, and `rla plan` writes iterations.yaml again:

    dvc.yaml          the stages and their dependencies
    params.yaml       the parameters of a pipeline, with its name
    iterations.yaml   the run folder and the iterations that dvc.yaml loops over
    .gitignore, .dvcignore   keep runs out of git, and virtual environments out of DVC; only if they do not exist

The file that `launch.training` names is copied, too. `rla init` writes nothing if one of the files, except for the
ignore files, exists with other content, so a call that was killed can be repeated. A longer plan only appends to
iterations.yaml, so that DVC does not redo earlier iterations.

The name of a run changes with its overrides, and a run of other parameters is replaced only with --overwrite.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from rla.config import Config, effective_parameters
from rla.config.load import apply_overrides, plain_data, read_config, read_yaml
from rla.config.schema import Differences, differences_text, flattened, parameter_differences
from rla.envs.registry import environment, load_config
from rla.errors import UserError
from rla.pipeline import StageSpec
from rla.plugins import loaded_path, registered
from rla.store.atomic import write_text
from rla.store.layout import places_of, resource
from rla.store.manifest import STARTED, check_run_version, read_run_config, run_config_path
from rla.text import counted

GROUP = "rla.pipelines"
RUNS, PLAN = Path("runs"), Path("iterations.yaml")
SHOWN = 10  # runs in an error
SMALL = "params.yaml"  # the packaged small run, of ALFWorld
SMALL_RUN = "alfworld-tiny"
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 80  # characters of a name from --env
ANY_ENVIRONMENT = "pipelines/small.yaml"  # the packaged small run of any environment


def params_file(given: Path | None, env: str | None = None) -> Path:
    """The file given, else ./params.yaml, else the packaged small run. If the environment of that file is not `env`:
    the packaged small run of `env`, or of any environment.
    """
    if given:
        return given
    local = Path(SMALL)
    found = local if local.exists() else resource(SMALL)
    if env is None or environment_of(found) == env:
        return found
    return packaged_files().get(f"{env}-tiny", resource(ANY_ENVIRONMENT))


def packaged_files(broken: list[str] | None = None) -> dict[str, Path]:
    """Name -> params file of the core and of packages. `broken` gets an error for each unreadable registration."""
    folders = [resource("pipelines")]
    for entry in registered(GROUP).values():
        try:
            folders.append(loaded_path(entry, folder=True))
        except UserError as error:
            (broken if broken is not None else []).append(str(error))
    found: dict[str, Path] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("*.yaml"))):
        found.setdefault(path.stem, path)
    return found


def run_and_params(
    run: Path | None, given: Path | None, env: str | None = None, *, newest: bool = False
) -> tuple[Path, Path]:
    """A run and the file with its parameters: the run's `config.yaml`, unless a file is `given` or `env` is another
    environment. Without a `run`, it is named by the file; with `newest`, the newest stored run.
    """
    name = env.partition(":")[0] if env else None
    file = params_file(given, name)
    stored = newest and run is None and given is None and env is None
    folder = existing_run(None) if stored else local_run(run) if run else default_run(file, env)
    own = run_config_path(folder)
    return folder, own if given is None and own.is_file() and name in (None, environment_of(own)) else file


def local_run(run: Path) -> Path:
    """`run`. Raises UserError for a URL, which would name a folder such as `s3:`."""
    if re.match(r"[a-z][a-z0-9+.-]+:/", str(run)):
        raise UserError(f"{run}: a URL; `rla pull URL RUN` copies the run here, and `rla push RUN URL` back")
    return run


def stored_runs() -> list[Path]:
    """The runs below `runs`, starting with the one whose outputs changed last. Reports do not count."""
    last = dict[Path, float]()
    for run in RUNS.glob("*"):
        calls = [path for path in run.glob("timings/*.json") if not path.name.endswith("-report.json")]
        times = [path.stat().st_mtime for path in (*calls, run_config_path(run)) if path.is_file()]
        last |= {run: max(times)} if times else {}
    return sorted(last, key=lambda run: last[run], reverse=True)


def existing_run(run: Path | None) -> Path:
    """`run`, or the newest of `stored_runs`. Raises UserError, which names the stored runs, if it does not exist."""
    if run is not None and run.is_dir():
        return run
    found = stored_runs()
    if run is None and found:
        return found[0]
    raise UserError(f"{f'{run}: no such run' if run else 'no run was named'}; {runs_text(found)}")


def runs_text(found: Sequence[Path]) -> str:
    """`stored runs: runs/a, runs/b`."""
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    names = ", ".join(map(str, found[:SHOWN]))
    return f"stored runs: {names}{more}" if found else f"{RUNS} holds none yet"


def environment_of(params: Path) -> str | None:
    """The `env.name` in a file; None without one."""
    section = _content(params).get("env")
    name = section.get("name") if isinstance(section, dict) else None
    return name if isinstance(name, str) else None


def _content(params: Path) -> dict[str, Any]:
    """The content of a file; empty if it is not a mapping, which is refused when its parameters are read."""
    data = read_yaml(params, remedy="give --params a file such as params.yaml")
    return data if isinstance(data, dict) else {}


def default_run(params: Path, env: str | None = None) -> Path:
    """`runs/<name>`: the key `name` of a params file, else the file's name; for a params.yaml the name of its
    environment, else of its folder. For the file that runs any environment: `env`, the value of `--env`, such as
    dice:two.
    """
    if params == resource(ANY_ENVIRONMENT):
        return RUNS / f"{_safe(env or 'any')}-small"
    said = _content(params).get("name") if params.is_file() else None
    if said:
        return RUNS / str(said)
    if params.name != SMALL:
        return RUNS / params.stem
    chosen = environment_of(params) if params.is_file() else None
    return RUNS / (_safe(chosen or params.resolve().parent.name) or "run")


def _safe(text: str) -> str:
    """`text` as part of a folder name."""
    return UNSAFE.sub("-", text).strip("-")[:LONGEST_NAME]


LONGEST = 48  # characters that overrides add to a name
DIGITS = 8  # of the digest in a name that cannot say all


def _suffix(params: Path, overrides: Sequence[str], config: Config) -> str:
    """`-credit.step_weight-0.5`: overrides that change the outputs of a params file; empty if there are none.

    If they do not fit into `LONGEST` characters, the suffix is cut and ends with a digest of all. The values are taken
    from `config`, which has the overrides.
    """
    known, own = flattened(effective_parameters(config)), _content(params)
    keys = {text.partition("=")[0] for text in overrides}
    chosen = {key: value for key, value in known.items() if any(f"{key}.".startswith(f"{each}.") for each in keys)}
    changed = {key: value for key, value in sorted(chosen.items()) if _value(own, key) != value}
    if not changed:
        return ""
    plain = "-".join(f"{key}-{value}" for key, value in changed.items())
    safe = _safe(plain)
    if safe == plain and len(plain) <= LONGEST:
        return f"-{plain}"
    return f"-{safe[: LONGEST - DIGITS - 1]}-{hashlib.sha256(plain.encode()).hexdigest()[:DIGITS]}"


def _value(data: Any, key: str) -> Any:
    """The value of a dotted key of nested mappings; None if it is missing."""
    return reduce(lambda node, name: node.get(name) if isinstance(node, Mapping) else None, key.split("."), data)


def _refuse_other_run(run: Path, config: Config, stages: Sequence[StageSpec]) -> None:
    """Raise UserError if `run` has outputs of other parameters, which this call would replace. Only parameters of
    stages with an output, whole or begun, are compared.
    """
    if not run_config_path(run).exists():
        return
    check_run_version(run)
    read = [path for spec in stages if _has_output(run, spec) for path in spec.sections]
    found = run_differences(read_run_config(run), config, read) if read else {}
    if found:
        raise UserError(
            f"{run}: made with {differences_text(found)}; name another run (--run, make run RUN=...), or replace what "
            "depends on that (--overwrite, make run OVERWRITE=1)"
        )


def run_differences(recorded: Mapping[str, Any], config: Config, sections: Sequence[str]) -> Differences:
    """The differences from the parameters of a run, in the keys of `sections` that outputs depend on."""
    now = flattened(effective_parameters(config, sections))
    before = flattened(recorded)
    if engine := _value(recorded, "generator.own.engine"):
        # Outputs depend on the engine that computed (`GeneratorConfig.engine_name`), but the request is recorded.
        before |= {"generator.backend": engine}
    return parameter_differences({key: value for key, value in before.items() if key in now}, now)


def differing_parameters(run: Path, config: Config, sections: Sequence[str], *, read: Path) -> Iterator[str]:
    """Notes about a call on `run` whose parameters come from the file `read`: differences from the run's parameters,
    and from a ./params.yaml of this run that was not read. `sections`: the parameters that are compared.
    """
    own, local = run_config_path(run), Path(SMALL)
    if not own.is_file():
        return
    try:
        if found := run_differences(read_run_config(run), config, sections):
            yield f"note: {own} has {differences_text(found)}"
        if read == own and local.is_file() and run.name.partition("-seed")[0] == default_run(local).name:
            unread = run_differences(read_run_config(run), load_config(local, [f"seed={config.seed}"]), sections)
            if unread:
                said = differences_text(unread, now="it has")
                yield f"note: {local} is not read ({said}); --params {local} does that"
    except UserError:  # a damaged config.yaml, which a stage rewrites, or a broken params.yaml that is not used
        return


def _has_output(run: Path, spec: StageSpec) -> bool:
    """Whether an output of the stage exists in any iteration of the run."""
    return any(
        path.is_file() or any(not file.name.startswith((".", STARTED)) for file in path.iterdir())  # not only begun
        for _, name in spec.writes
        for path in places_of(run, name)
    )


HEADER = "# Written by `rla plan`; read by dvc.yaml. More iterations: rla run --iterations 60\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of `rla plan` and `rla run`."""

    iterations: int
    evaluate_every: int = 0
    params: Path = Path("params.yaml")
    run: Path | None = None
    seed: int | None = None
    overrides: Sequence[str] = ()
    suffix: str = ""  # of the run's name, if `run` is None: the changes of the overrides
    overwrite: bool = False  # outputs of other parameters are replaced


def run_folder(plan: Plan) -> Path:
    """The run's folder: as given, else named by params file, seed and overrides."""
    if plan.run:
        return local_run(plan.run)
    folder, seed = default_run(plan.params), "" if plan.seed is None else f"-seed{plan.seed}"
    return folder.with_name(f"{folder.name}{seed}{plan.suffix}")


def evaluations_of(planned: dict[str, Any]) -> list[int]:
    """The iterations that an iterations.yaml evaluates. Entries that are not numbers are ignored."""
    found = planned.get("evaluations")
    return [number for number in found if type(number) is int] if isinstance(found, list) else []


def document(plan: Plan, found: dict[str, Any], *, taught: bool = False) -> dict[str, Any]:
    """The content of iterations.yaml. `found`: its earlier content, whose evaluations stay. `taught`: the run begins
    with a warm start of an existing model, which is evaluated before.
    """
    run = str(run_folder(plan))
    earlier = [number for number in evaluations_of(found) if number <= plan.iterations and found.get("run") == run]
    every = range(0, plan.iterations + 1, plan.evaluate_every) if plan.evaluate_every else ()
    loop = {
        str(number): {"prev": number - 1, "tasks": f"{number - 1}/candidates" if number > 1 else "0/pool"}
        for number in range(1, plan.iterations + 1)
    }
    words = ["--run", run, "--params", str(plan.params)]
    words += [] if plan.seed is None else ["--seed", str(plan.seed)]
    words += [word for text in plan.overrides for word in ("--set", text)]
    return {
        "run": run,
        "options": shlex.join(words),
        "params": str(plan.params),
        "last": plan.iterations,
        "evaluations": sorted({0, plan.iterations, *every, *earlier}),
        "untrained": {"init": shlex.quote(run)} if taught else {},
        "iterations": loop,
    }


def _iterations_text(data: dict[str, Any]) -> str:
    return HEADER + yaml.safe_dump(data, sort_keys=False, default_flow_style=None)


def followed(pipeline: dict[str, Any]) -> set[str]:
    """The dotted keys of parameters that the stages of a dvc.yaml depend on."""
    bodies = (stage.get("do", stage) for stage in pipeline["stages"].values())
    entries = (entry for body in bodies for entry in body.get("params", []))
    return {key for entry in entries for keys in entry.values() for key in keys}


def refuse_unnamed(params: Path, config: Config, pipeline: Path) -> None:
    """Raise UserError if `params` has no value for a key that the pipeline follows: DVC does not know the defaults."""
    if not pipeline.is_file():
        return
    written = flattened(_content(params))
    try:
        keys = sorted(followed(read_yaml(pipeline, remedy="take the one of rla")))
    except (AttributeError, KeyError, TypeError):
        raise UserError(f"{pipeline}: not a pipeline of DVC; take the one of rla") from None
    missing = {
        key: reduce(getattr, key.split("."), config)
        for key in keys
        if not any(f"{each}.".startswith(f"{key}.") for each in written)
    }
    if missing:
        shown = {key: f" (default: {value})" * isinstance(value, str | int | float) for key, value in missing.items()}
        lines = ", ".join(f"{key}{default}" for key, default in shown.items())
        raise UserError(f"{params}: {pipeline.name} follows keys that are not in it; add {lines}")


def _refuse_outside(run: Path, project: Path) -> None:
    """Raise UserError if the run is not in the folder of dvc.yaml. DVC keeps a copy of the report, but refuses to copy
    files from outside of its project, and would say so only after the last iteration. In a git repository a link does
    not help, because DVC lists the report in a .gitignore.
    """
    places = [os.path.abspath] + ([os.path.realpath] if (project / ".git").exists() else [])
    for place in places:
        top = place(project)
        if os.path.commonpath((top, place(project / run))) != top:
            raise UserError(
                f"{run}: lies outside of {top}, whose DVC keeps the report; name a run inside of it, "
                "or turn the loop in a folder on that disk (rla init FOLDER)"
            )


def write_plan(plan: Plan, out: Path, *, stages: Sequence[StageSpec]) -> tuple[str, Path, Config]:
    """Write the file if its content changes. Returns a line about it, the run's folder, and its parameters. `stages`:
    all that make outputs of a run.

    Raises UserError if parameters are missing, or if the run is outside of the project or made with other parameters.
    """
    seed = [] if plan.seed is None else [f"seed={plan.seed}"]
    config = load_config(plan.params, [*plan.overrides, *seed])
    others = [text for text in plan.overrides if text.partition("=")[0] != "seed"]
    if len(others) < len(plan.overrides):  # `--set seed=N` is `--seed N`
        plan = replace(plan, seed=config.seed, overrides=others)
    plan = replace(plan, suffix=_suffix(plan.params, plan.overrides, config))
    folder = run_folder(plan)
    if out.with_name("dvc.yaml").is_file():
        _refuse_outside(folder, out.parent)
    if not plan.overwrite:
        _refuse_other_run(folder, config, stages)
    refuse_unnamed(plan.params, config, out.with_name("dvc.yaml"))
    found = read_yaml(out, remedy="") if out.exists() else None
    data = document(plan, found if isinstance(found, dict) else {}, taught=config.teaches_pretrained)
    text = _iterations_text(data)
    if not out.exists() or out.read_text() != text:
        write_text(out, text)
    points = ", ".join(map(str, data["evaluations"]))
    said = f"{out}: {counted(plan.iterations, 'iteration')} of {data['run']}, evaluated at {points}"
    return said, folder, config


IGNORED = {
    ".gitignore": "/runs/\n/.venv/\n/dvc_plots/\n/.iterations.yaml.lock\n__pycache__/\n",
    ".dvcignore": ".venv/\n.git/\n",
}
ANY = "small"  # the pipeline for any environment
NO_NAME = re.compile(r"^(  name:) null.*$", re.MULTILINE)
LEADING_COMMENT = re.compile(r"\A(?:#.*\n)+")
PARAMS_HEADER = """\
# The parameters of the pipeline {pipeline}, written by `rla init`. This turns its loop:
# {call}
# A key that is not here has its default: `rla params` prints every key with its value.
# `rla <stage> --set key=value` overrides one key for one call.
"""
FIRST_KEY = re.compile(r"^[a-z]\w*:", re.MULTILINE)
ITERATIONS = 12
RECIPE_CALL = re.compile(r"^# rla run(?: --params \S+)?((?: --(?:iterations|evaluate-every) \d+)*)$", re.MULTILINE)


def pipelines(broken: list[str] | None = None) -> dict[str, Path]:
    """Name -> params file of the installed pipelines. `broken`: as for `packaged_files`."""
    small = {SMALL_RUN: resource("params.yaml")}
    files = (packaged_files(broken) | small).items()
    return small | {name: path for name, path in files if "env" in (read_yaml(path, remedy="reinstall it") or {})}


def begin_folder(
    folder: Path,
    *,
    pipeline: str,
    env: str | None = None,
    changes: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> list[Path]:
    """Write the files of `pipeline` into `folder`, which may not exist yet. Returns their paths.

    `env`: the environment, if the pipeline runs any. `changes`: `key=value` of the parameters; with any, the file has
    no comments but the `notes` at its top. Raises UserError.
    """
    broken: list[str] = []
    known = pipelines(broken)
    if pipeline not in known:
        said = "; ".join([f"no such pipeline; there are {', '.join(known)}", *broken])
        raise UserError(f"--pipeline {pipeline}: {said}")
    if pipeline != ANY and env is not None:
        raise UserError(f"--env {env}: {pipeline} has an environment of its own; --pipeline {ANY} takes any")
    if pipeline == ANY and env is None:
        raise UserError(f"--pipeline {ANY}: runs any environment; say which by --env NAME (`rla envs` lists them)")
    if env is not None:
        environment(env)
    name = pipeline if env is None else f"{env}-{pipeline}"
    params = LEADING_COMMENT.sub("", known[pipeline].read_text())
    params = params if env is None else NO_NAME.sub(rf"\1 {env}", params, count=1)
    if name != SMALL_RUN:
        params = FIRST_KEY.sub(rf"name: {name}  # of the run: runs/{name}\n\g<0>", params, count=1)
    if changes:
        data = apply_overrides(plain_data(params), [f"name={name}", *changes])
        text = yaml.safe_dump(data, sort_keys=False, width=120)
        params = "".join([*(f"# {note}\n" for note in notes), text])
    texts = {"dvc.yaml": resource("dvc.yaml").read_text()}
    call = recipe_call(known[pipeline])
    texts["params.yaml"] = PARAMS_HEADER.format(pipeline=pipeline, call=call) + params
    config = read_config(known[pipeline], changes, params_of=None)
    if launcher := config.launch.configuration:
        texts[launcher] = resource(launcher).read_text()  # a copy that can be edited
    iterations, evaluate_every = recommended(known[pipeline])
    plan = Plan(iterations=iterations, evaluate_every=evaluate_every, run=RUNS / name)
    texts["iterations.yaml"] = _iterations_text(document(plan, {}, taught=config.teaches_pretrained))
    for file, text in texts.items():
        path = folder / file
        if path.exists() and not (path.is_file() and path.read_bytes() == text.encode()):
            raise UserError(f"{path}: is there already; choose a folder without {', '.join(texts)}")
    texts |= {file: text for file, text in IGNORED.items() if not (folder / file).exists()}
    for file, text in texts.items():
        try:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise UserError(f"{folder}: a file is in the way of this folder; choose another path") from None
        write_text(folder / file, text)
    return [folder / file for file in texts]


def recipe_call(params: Path) -> str:
    """The `rla run` that the comment at the top of a params file recommends, without its `--params`."""
    found = RECIPE_CALL.search(params.read_text(errors="replace"))  # its reader names what is not UTF-8
    return f"rla run{found[1] if found else ''}"


def recommended(params: Path, iterations: int | None = None, evaluate_every: int | None = None) -> tuple[int, int]:
    """The two numbers as given, else as in the recipe call of the params file, else 12 and 0."""
    found = dict(re.findall(r"--([a-z-]+) (\d+)", recipe_call(params))) if params.is_file() else {}
    return (
        int(found.get("iterations", ITERATIONS)) if iterations is None else iterations,
        int(found.get("evaluate-every", 0)) if evaluate_every is None else evaluate_every,
    )
