"""Which params file a command reads, and how its run is called.

A package brings pipelines with a folder of params files, a `Path`. `rla init --pipeline` offers those that name an
environment, and `--env dice` reads the one that is called `dice-tiny`. Files of the core go before equal names:

    [project.entry-points."rla.pipelines"]
    dice = "dice:PIPELINES"
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rla.config.load import read_yaml
from rla.errors import UserError
from rla.plugins import loaded_path, registered
from rla.store.layout import resource
from rla.store.run_config import run_config_path

GROUP = "rla.pipelines"
RUNS = Path("runs")
SHOWN = 10  # runs that an error names
SMALL = "params.yaml"  # the packaged small run, of ALFWorld
SMALL_RUN = "alfworld-tiny"
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 80  # characters of what --env asks for
ANY_ENVIRONMENT = "pipelines/small.yaml"  # the packaged small run of any environment


def params_file(given: Path | None, env: str | None = None) -> Path:
    """The file given, else ./params.yaml, else the packaged small run.

    Where `env` asks for another environment than such a file is about, it is the packaged small run of that one, or of
    any.
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

    Without a `run` it is that of the file. `newest`: unless one is given, the newest run that is stored.
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
    """`run`, or the newest of `stored_runs` if that is None. Raises UserError naming the runs that there are."""
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
    """What a file says; nothing where it is no mapping, which whoever reads its parameters refuses."""
    data = read_yaml(params, remedy="give --params a file such as params.yaml")
    return data if isinstance(data, dict) else {}


def default_run(params: Path, env: str | None = None) -> Path:
    """`runs/<name>`: the `name` that a params file says, else its own; of a params.yaml that of its environment, or of
    its folder if it names none.

    `env`: what `--env` asks for, such as dice:two. It names the run of the file for any environment, because
    two of them are two runs.
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
