"""`rla init`: the files that `rla run` needs, in a folder that has none of them.

    dvc.yaml          the stages and what each depends on, as the package has it
    params.yaml       the parameters of a pipeline of the package, with its name
    iterations.yaml   which iterations there are; `rla run` writes it again
    .gitignore, .dvcignore   keep runs out of git, and virtual environments out of DVC; only where there are none

The file that `launch.training` names comes with them. Nothing is written where one of the files, but for the ignore
files, is there with other content. A call that was killed can so be made again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from rla.config.load import apply_overrides, plain_data, read_config, read_yaml
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pipeline.params_files import SMALL_RUN, packaged_files
from rla.pipeline.plan import Plan, document, iterations_text
from rla.store.atomic import write_text
from rla.store.layout import resource

FILES = ("dvc.yaml", "params.yaml", "iterations.yaml")
IGNORED = {".gitignore": "/runs/\n/.venv/\n/dvc_plots/\n__pycache__/\n", ".dvcignore": ".venv/\n.git/\n"}
ANY = "small"  # the pipeline that leaves the environment open
NO_NAME = re.compile(r"^(  name:) null.*$", re.MULTILINE)
LEADING_COMMENT = re.compile(r"\A(?:#.*\n)+")
HEADER = """\
# The parameters of the pipeline {pipeline}; `rla run` turns the loop with them. Written by `rla init`.
# A key that is not here has its default: `rla params` prints every key with its value.
# `rla <stage> --set key=value` overrides one key for one call.
"""
FIRST_KEY = re.compile(r"^[a-z]\w*:", re.MULTILINE)
ITERATIONS = 12


def pipelines(broken: list[str] | None = None) -> dict[str, Path]:
    """Name -> params file of the pipelines that are installed. `broken`: as `packaged_files` fills it."""
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
    """Write the files of `pipeline` into `folder`, which may not exist yet; what was written.

    `env`: the environment, for the pipeline that leaves it open. `changes`: `key=value` of the parameters; with any,
    the file has no comments but `notes`, at its top. Raises UserError.
    """
    broken: list[str] = []
    known = pipelines(broken)
    if pipeline not in known:
        said = "; ".join([f"no such pipeline; there are {', '.join(known)}", *broken])
        raise UserError(f"--pipeline {pipeline}: {said}")
    refuse_other_environment(pipeline, env)
    name = pipeline if env is None else f"{env}-{pipeline}"
    params = HEADER.format(pipeline=pipeline) + params_text(known[pipeline], name, env)
    if changes:
        data = apply_overrides(plain_data(params), [f"name={name}", *changes])
        text = yaml.safe_dump(data, sort_keys=False, width=120)
        params = "".join([HEADER.format(pipeline=pipeline), *(f"# {note}\n" for note in notes), text])
    texts = {"dvc.yaml": resource("dvc.yaml").read_text(), "params.yaml": params}
    if launcher := read_config(known[pipeline], params_of=None).launch.configuration:
        texts[launcher] = resource(launcher).read_text()  # a copy of the launcher's configuration can be edited
    texts["iterations.yaml"] = iterations_text(document(Plan(iterations=ITERATIONS, run=Path("runs") / name), {}))
    if there := [file for file, text in texts.items() if differs(folder / file, text)]:
        raise UserError(f"{folder / there[0]}: is there already; choose a folder without {', '.join(texts)}")
    texts |= {file: text for file, text in IGNORED.items() if not (folder / file).exists()}
    for file, text in texts.items():
        make_folder((folder / file).parent)
        write_text(folder / file, text)
    return [folder / file for file in texts]


def refuse_other_environment(pipeline: str, env: str | None) -> None:
    """UserError where an environment is missing, unknown, or given to a pipeline that has its own."""
    if pipeline != ANY and env is not None:
        raise UserError(f"--env {env}: {pipeline} has an environment of its own; --pipeline {ANY} takes any")
    if pipeline == ANY and env is None:
        raise UserError(f"--pipeline {ANY}: runs any environment; say which by --env NAME (`rla envs` lists them)")
    if env is not None:
        environment(env)


def differs(path: Path, text: str) -> bool:
    """Whether something else than this text is there."""
    return path.exists() and not (path.is_file() and path.read_bytes() == text.encode())


def make_folder(folder: Path) -> None:
    """Raises UserError where a file is in the way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(path for path in (folder, *folder.parents) if path.is_symlink() or path.exists())
        raise UserError(f"{file}: a file, where a folder is to be; choose another path") from None


def params_text(path: Path, name: str, env: str | None) -> str:
    """The params file without its leading comment, and with what a copy needs: the name of its runs, and the
    environment where that is open.
    """
    text = LEADING_COMMENT.sub("", path.read_text())
    text = text if env is None else NO_NAME.sub(rf"\1 {env}", text, count=1)
    if name == SMALL_RUN:
        return text
    return FIRST_KEY.sub(rf"name: {name}  # of the run: runs/{name}\n\g<0>", text, count=1)
