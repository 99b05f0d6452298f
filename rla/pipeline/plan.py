"""`iterations.yaml`: the run folder and the iterations that `dvc.yaml` loops over.

Growing a run only appends: the entries of earlier iterations stay as they are, so DVC redoes none of them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.config.load import read_yaml
from rla.envs.configured import load_config
from rla.errors import UserError
from rla.pipeline.context import StageSpec
from rla.pipeline.params_files import default_run, local_run
from rla.pipeline.run_identity import override_suffix, refuse_other_run
from rla.store.atomic import write_text
from rla.store.sizes import counted

HEADER = "# Written by `rla plan`; read by dvc.yaml. More iterations: rla run --iterations 60\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `rla plan` was asked for."""

    iterations: int
    evaluate_every: int = 0
    params: Path = Path("params.yaml")
    run: Path | None = None
    seed: int | None = None
    overrides: Sequence[str] = ()
    suffix: str = ""  # of the run's name, where it is not given: what the overrides change
    overwrite: bool = False  # a run of other parameters is replaced


def run_folder(plan: Plan) -> Path:
    """The run's folder: as given, else by params file, seed and overrides."""
    if plan.run:
        return local_run(plan.run)
    folder, seed = default_run(plan.params), "" if plan.seed is None else f"-seed{plan.seed}"
    return folder.with_name(f"{folder.name}{seed}{plan.suffix}")


def call_options(plan: Plan) -> str:
    """The options of every stage call, quoted for a shell."""
    words = ["--run", str(run_folder(plan)), "--params", str(plan.params)]
    if plan.seed is not None:
        words += ["--seed", str(plan.seed)]
    for text in plan.overrides:
        words += ["--set", text]
    return shlex.join(words)


def evaluations(plan: Plan, earlier: Sequence[int]) -> list[int]:
    """The warm start, every K-th iteration, the last one, and those that an earlier plan of this run had."""
    every = range(0, plan.iterations + 1, plan.evaluate_every) if plan.evaluate_every else ()
    return sorted({0, plan.iterations, *every, *(number for number in earlier if number <= plan.iterations)})


def evaluations_of(planned: dict[str, Any]) -> list[int]:
    """The iterations that an iterations.yaml evaluates; what is no number is none."""
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
    return {
        "run": run,
        "options": call_options(plan),
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
    """UserError where `params` leaves out a key that the pipeline follows: DVC looks at the file, not at defaults."""
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
    """UserError where the run does not lie in the folder of dvc.yaml. DVC keeps a copy of the report, and of files that
    lie elsewhere it keeps none: it would say so after the last iteration. Inside of git a link does not help, because
    DVC lists the report in a .gitignore.
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
    """The plan with what its overrides add to the run's name, and its parameters. UserError where params fall short."""
    if not plan.params.is_file():
        raise UserError(f"{plan.params}: no such file; give --params a file such as params.yaml")
    seed = [] if plan.seed is None else [f"seed={plan.seed}"]
    config = load_config(plan.params, [*plan.overrides, *seed])
    others = [text for text in plan.overrides if text.partition("=")[0] != "seed"]
    if len(others) < len(plan.overrides):  # `--set seed=N` is `--seed N`
        plan = replace(plan, seed=config.seed, overrides=others)
    return replace(plan, suffix=override_suffix(plan.params, plan.overrides, config)), config


def write_plan(plan: Plan, out: Path, *, stages: Sequence[StageSpec]) -> str:
    """Write the file where it differs; returns a line about it. `stages`: all that may have made outputs of the run.

    UserError where params do not exist or fall short, where the run lies elsewhere, and where it has outputs of other
    parameters.
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
