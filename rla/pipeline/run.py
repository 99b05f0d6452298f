"""The run folder and the params file of a command.

A package brings pipelines with a folder of params files, a `Path`. `rla init --pipeline` offers those that name an
environment, and `--env dice` reads the one that is called `dice-tiny`. Files of the core go before equal names:

    [project.entry-points."rla.pipelines"]
    dice = "dice:PIPELINES"

The name of a run changes with its overrides, and a run of other parameters is not replaced unasked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any

from rla.config import Config, effective_parameters
from rla.config.load import Differences, differences_text, flattened, parameter_differences, read_yaml
from rla.envs.registry import load_config
from rla.errors import UserError
from rla.pipeline.context import StageSpec
from rla.plugins import loaded_path, registered
from rla.store.layout import places_of, resource
from rla.store.record import STARTED
from rla.store.run_config import check_run_version, read_run_config, run_config_path

GROUP = "rla.pipelines"
RUNS = Path("runs")
SHOWN = 10  # runs that an error names
SMALL = "params.yaml"  # the packaged small run, of ALFWorld
SMALL_RUN = "alfworld-tiny"
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 80  # characters of a name from --env
ANY_ENVIRONMENT = "pipelines/small.yaml"  # the packaged small run of any environment


def params_file(given: Path | None, env: str | None = None) -> Path:
    """The file given, else ./params.yaml, else the packaged small run.

    If `env` asks for another environment than the file's, the packaged small run of that environment, or of any.
    """
    if given:
        return given
    local = Path(SMALL)
    found = local if local.exists() else resource(SMALL)
    if env is None or environment_of(found) == env:
        return found
    return packaged_files().get(f"{env}-tiny", resource(ANY_ENVIRONMENT))


def packaged_files(broken: list[str] | None = None) -> dict[str, Path]:
    """Name -> file below the `pipelines` of the core and of packages. `broken` gets an error for each registration that
    cannot be read.
    """
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
    """A run and the file to read its parameters from: the run's own `config.yaml`, unless a file is `given` or `env`
    asks for another environment.

    Without a `run`, the run of the file; with `newest`, the newest stored run.
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
    """The runs below `runs`, the one first on which a stage has worked last."""
    last = {run: last_worked(run) for run in RUNS.glob("*") if run.is_dir()}
    return sorted((run for run, time in last.items() if time), key=lambda run: last[run], reverse=True)


def last_worked(run: Path) -> float:
    """When a stage that makes something of the run has last ended; 0 for a folder that is not a run."""
    calls = [path for path in run.glob("timings/*.json") if not path.name.endswith("-report.json")]
    times = [path.stat().st_mtime for path in (*calls, run_config_path(run)) if path.is_file()]
    return max(times, default=0.0)


def existing_run(run: Path | None) -> Path:
    """`run`, or the newest of `stored_runs` if that is None. Raises UserError naming the stored runs."""
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
    """The `env.name` that a file says, if any."""
    section = params_content(params).get("env")
    name = section.get("name") if isinstance(section, dict) else None
    return name if isinstance(name, str) else None


def params_content(params: Path) -> dict[str, Any]:
    """The content of a file; empty if it is not a mapping, which reading its parameters will refuse."""
    data = read_yaml(params, remedy="give --params a file such as params.yaml")
    return data if isinstance(data, dict) else {}


def default_run(params: Path, env: str | None = None) -> Path:
    """`runs/<name>`: the `name` key of a params file, else the name of the file; for a params.yaml the name of its
    environment, else of its folder.

    `env`: the value of `--env`, such as dice:two. It names the run of the file for any environment, because two
    environments are two runs.
    """
    if params == resource(ANY_ENVIRONMENT):
        return RUNS / f"{safe_name(env or 'any')}-small"
    said = params_content(params).get("name") if params.is_file() else None
    if said:
        return RUNS / str(said)
    if params.name != SMALL:
        return RUNS / params.stem
    chosen = environment_of(params) if params.is_file() else None
    return RUNS / (safe_name(chosen or params.resolve().parent.name) or "run")


def safe_name(text: str) -> str:
    """`text` as a part of a folder's name."""
    return UNSAFE.sub("-", text).strip("-")[:LONGEST_NAME]


LONGEST = 48  # characters that overrides add to a name
DIGITS = 8  # of the digest in a name that cannot say all


def override_suffix(params: Path, overrides: Sequence[str], config: Config) -> str:
    """`-credit.step_weight-0.5`: the changes of the overrides to a params file, as far as outputs depend on them.

    Empty if nothing changes. If not all of it fits into `LONGEST` characters, the suffix has the first of the keys and
    ends with a digest of all. Values are those of `config`, which has the overrides.
    """
    known, own = flattened(effective_parameters(config)), read_yaml(params, remedy="give --params a file") or {}
    keys = {text.partition("=")[0] for text in overrides}
    chosen = {key: value for key, value in known.items() if any(f"{key}.".startswith(f"{each}.") for each in keys)}
    changed = {key: value for key, value in sorted(chosen.items()) if value_at(own, key) != value}
    if not changed:
        return ""
    plain = ",".join(f"{key}={value}" for key, value in changed.items())
    texts = [f"{key}-{value}" for key, value in changed.items()]
    parts = [safe_name(text) for text in texts]
    if parts == texts and len("-".join(parts)) <= LONGEST:
        return f"-{'-'.join(parts)}"
    room = LONGEST - DIGITS - 1
    longer = accumulate([parts[0][:room], *parts[1:]], "{}-{}".format)
    *_, kept = takewhile(lambda text: len(text) <= room, longer)
    digest = hashlib.sha256(plain.encode()).hexdigest()[:DIGITS]
    return f"-{kept}-{digest}"


def value_at(data: Any, key: str) -> Any:
    """The value of a dotted key of nested mappings; None if it is missing."""
    return reduce(lambda node, name: node.get(name) if isinstance(node, Mapping) else None, key.split("."), data)


def refuse_other_run(run: Path, config: Config, stages: Sequence[StageSpec]) -> None:
    """Raise UserError if `run` has outputs of other parameters, which this call would replace.

    Only parameters that a stage with an output, whole or begun, has read are compared.
    """
    if not run_config_path(run).exists():
        return
    check_run_version(run)
    read = [path for spec in stages if has_output(run, spec) for path in spec.sections]
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
    if engine := value_at(recorded, "generator.own.engine"):
        # outputs depend on the engine that computed (`GeneratorConfig.engine_name`), and the request is recorded
        before |= {"generator.backend": engine}
    return parameter_differences({key: value for key, value in before.items() if key in now}, now)


def differing_parameters(run: Path, config: Config, sections: Sequence[str], *, read: Path) -> Iterator[str]:
    """Notes about a call on `run` with the parameters of the file `read`: differences from the run's parameters, and
    from a ./params.yaml about this run that was not read, in the keys of `sections` that outputs depend on.
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
    except UserError:  # a damaged file, which a stage rewrites, or a params.yaml that the call did not name
        return


def has_output(run: Path, spec: StageSpec) -> bool:
    """Whether the stage has made anything of the run that is still there, in any iteration."""
    return any(
        path.is_file() or any(not file.name.startswith((".", STARTED)) for file in path.iterdir())  # not only begun
        for _, name in spec.writes
        for path in places_of(run, name)
    )
