"""The files of a loop: `rla init` writes them into a new folder, `rla plan` writes iterations.yaml again.

    dvc.yaml          the stages and what each depends on, as the package has it
    params.yaml       the parameters of a pipeline of the package, with its name
    iterations.yaml   the run folder and the iterations that dvc.yaml loops over
    .gitignore, .dvcignore   keep runs out of git, and virtual environments out of DVC; only if there are none

The file that `launch.training` names comes with them. `rla init` writes nothing if one of the files, except for the
ignore files, exists with other content, so a call that was killed can be repeated.

Growing a run only appends to iterations.yaml: the entries of earlier iterations stay as they are, so DVC redoes none.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from rla.config import Config
from rla.config.load import apply_overrides, plain_data, read_config, read_yaml
from rla.envs.registry import environment, load_config
from rla.errors import UserError
from rla.pipeline.context import StageSpec
from rla.pipeline.run import SMALL_RUN, default_run, local_run, override_suffix, packaged_files, refuse_other_run
from rla.store.atomic import write_text
from rla.store.layout import resource
from rla.store.texts import counted

HEADER = "# Written by `rla plan`; read by dvc.yaml. More iterations: rla run --iterations 60\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of `rla plan`."""

    iterations: int
    evaluate_every: int = 0
    params: Path = Path("params.yaml")
    run: Path | None = None
    seed: int | None = None
    overrides: Sequence[str] = ()
    suffix: str = ""  # of the run's name, if it is not given: the changes of the overrides
    overwrite: bool = False  # a run of other parameters is replaced


def run_folder(plan: Plan) -> Path:
    """The run's folder: as given, else by params file, seed and overrides."""
    if plan.run:
        return local_run(plan.run)
    folder, seed = default_run(plan.params), "" if plan.seed is None else f"-seed{plan.seed}"
    return folder.with_name(f"{folder.name}{seed}{plan.suffix}")


def evaluations(plan: Plan, earlier: Sequence[int]) -> list[int]:
    """The warm start, every K-th iteration, the last one, and the evaluations of an earlier plan of this run."""
    every = range(0, plan.iterations + 1, plan.evaluate_every) if plan.evaluate_every else ()
    return sorted({0, plan.iterations, *every, *(number for number in earlier if number <= plan.iterations)})


def evaluations_of(planned: dict[str, Any]) -> list[int]:
    """The iterations that an iterations.yaml evaluates. Entries that are not numbers are ignored."""
    found = planned.get("evaluations")
    return [number for number in found if type(number) is int] if isinstance(found, list) else []


def document(plan: Plan, found: dict[str, Any], *, taught: bool = False) -> dict[str, Any]:
    """The content of iterations.yaml; `found`: of before; `taught`: a model that exists begins with a warm start."""
    run = str(run_folder(plan))
    earlier = evaluations_of(found) if found.get("run") == run else []
    loop = {
        str(number): {
            "prev": number - 1,
            "tasks": f"{number - 1}/candidates" if number > 1 else "0/pool",
        }
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
        "evaluations": evaluations(plan, earlier),
        "untrained": {"init": shlex.quote(run)} if taught else {},
        "iterations": loop,
    }


def iterations_text(data: dict[str, Any]) -> str:
    """The text of an iterations.yaml with this content."""
    import yaml

    return HEADER + yaml.safe_dump(data, sort_keys=False, default_flow_style=None)


def followed(pipeline: dict[str, Any]) -> set[str]:
    """The params, as dotted keys, that the stages of a dvc.yaml depend on."""
    bodies = (stage.get("do", stage) for stage in pipeline["stages"].values())
    entries = (entry for body in bodies for entry in body.get("params", []))
    return {key for entry in entries for keys in entry.values() for key in keys}


def refuse_unnamed(params: Path, config: Config, pipeline: Path) -> None:
    """Raise UserError if `params` leaves out a key that the pipeline follows: DVC reads the file, not the defaults."""
    if not pipeline.is_file():
        return
    written = read_yaml(params, remedy="give --params a file such as params.yaml") or {}
    try:
        keys = sorted(followed(read_yaml(pipeline, remedy="take the one of rla")))
    except (AttributeError, KeyError, TypeError):
        raise UserError(f"{pipeline}: not a pipeline of DVC; take the one of rla") from None
    lines = []
    for key in keys:
        *parents, name = key.split(".")
        inside = reduce(lambda node, parent: node.get(parent) or {}, parents, written)
        if name not in inside:
            value = reduce(getattr, key.split("."), config)
            lines.append(f"{key} (default: {value})" if isinstance(value, str | int | float) else key)
    if lines:
        raise UserError(f"{params}: {pipeline.name} follows keys that are not in it; add {', '.join(lines)}")


def refuse_outside(run: Path, project: Path) -> None:
    """Raise UserError if the run does not lie in the folder of dvc.yaml. DVC keeps a copy of the report, refuses to do
    so for files outside of its project, and would say so only after the last iteration. In a git repository a link does
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


def named_plan(plan: Plan) -> tuple[Plan, Config]:
    """The plan with the suffix that its overrides add to the run's name, and its parameters. Raises UserError."""
    if not plan.params.is_file():
        raise UserError(f"{plan.params}: no such file; give --params a file such as params.yaml")
    seed = [] if plan.seed is None else [f"seed={plan.seed}"]
    config = load_config(plan.params, [*plan.overrides, *seed])
    others = [text for text in plan.overrides if text.partition("=")[0] != "seed"]
    if len(others) < len(plan.overrides):  # `--set seed=N` is `--seed N`
        plan = replace(plan, seed=config.seed, overrides=others)
    return replace(plan, suffix=override_suffix(plan.params, plan.overrides, config)), config


def write_plan(plan: Plan, out: Path, *, stages: Sequence[StageSpec]) -> str:
    """Write the file if it differs; returns a line about it. `stages`: all that may have made outputs of the run.

    Raises UserError if params do not exist or lack keys, if the run lies outside of the project, or if it has outputs
    of other parameters.
    """
    plan, config = named_plan(plan)
    if out.with_name("dvc.yaml").is_file():
        refuse_outside(run_folder(plan), out.parent)
    if not plan.overwrite:
        refuse_other_run(run_folder(plan), config, stages)
    refuse_unnamed(plan.params, config, out.with_name("dvc.yaml"))
    found = read_yaml(out, remedy="") if out.exists() else None
    data = document(plan, found if isinstance(found, dict) else {}, taught=config.teaches_pretrained)
    text = iterations_text(data)
    if not out.exists() or out.read_text() != text:
        write_text(out, text)
    points = ", ".join(map(str, data["evaluations"]))
    return f"{out}: {counted(plan.iterations, 'iteration')} of {data['run']}, evaluated at {points}"


FILES = ("dvc.yaml", "params.yaml", "iterations.yaml")
IGNORED = {".gitignore": "/runs/\n/.venv/\n/dvc_plots/\n__pycache__/\n", ".dvcignore": ".venv/\n.git/\n"}
ANY = "small"  # the pipeline that leaves the environment open
NO_NAME = re.compile(r"^(  name:) null.*$", re.MULTILINE)
LEADING_COMMENT = re.compile(r"\A(?:#.*\n)+")
PARAMS_HEADER = """\
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
    """Write the files of `pipeline` into `folder`, which may not exist yet; the paths of the files.

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
    params = PARAMS_HEADER.format(pipeline=pipeline) + params_text(known[pipeline], name, env)
    if changes:
        data = apply_overrides(plain_data(params), [f"name={name}", *changes])
        text = yaml.safe_dump(data, sort_keys=False, width=120)
        params = "".join([PARAMS_HEADER.format(pipeline=pipeline), *(f"# {note}\n" for note in notes), text])
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
    """Raise UserError if an environment is missing, unknown, or given to a pipeline that has its own."""
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
    """Raises UserError if a file is in the way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(path for path in (folder, *folder.parents) if path.is_symlink() or path.exists())
        raise UserError(f"{file}: a file, where a folder is to be; choose another path") from None


def params_text(path: Path, name: str, env: str | None) -> str:
    """The params file for a copy: without its leading comment, with the name of its runs, and with the environment if
    the pipeline leaves it open.
    """
    text = LEADING_COMMENT.sub("", path.read_text())
    text = text if env is None else NO_NAME.sub(rf"\1 {env}", text, count=1)
    if name == SMALL_RUN:
        return text
    return FIRST_KEY.sub(rf"name: {name}  # of the run: runs/{name}\n\g<0>", text, count=1)
