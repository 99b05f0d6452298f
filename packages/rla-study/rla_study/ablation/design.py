"""The design of an experiment: a YAML file with the parameters that all arms share and those in which each differs.

params: alfworld-ablation.yaml     shared parameters, a path relative to this file, whose `seed` is the start's;
                                   default: the params.yaml that rla brings
iterations: 12                     of every arm
evaluate_every: 4
seeds: [0, 1, 2]                   of the arms; the warm start is made once and shared
start_per_seed: false              true: every seed has a warm start of its own
baseline: outcome                  the arm that the others are compared with
measures: [avg@8, policy_entropy]  further metrics that the report has a table of
comparisons: [[full, outcome]]     pairs to compare seed by seed; none: every arm with its `against` or the baseline
arms:
  outcome: {title: outcome only, set: {credit: {estimator: outcome}}}
  curated: {title: curated tasks, curated: true, set: {}}
  stitched: {against: real, set: {}} compared with another arm than the baseline
  narrow: {own_tasks: true, set: {tasks: {kinds: [arithmetic]}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config import load
from rla.envs.registry import from_mapping
from rla.errors import UserError
from rla.store.layout import resource
from rla_study import PIPELINES

SCHEMA = Path(__file__).with_name("design.schema.json")
# Params that may name a local file or folder.
PLACES: tuple[str, ...] = ("tasks.path", "model.policy", "model.reward", "adaptation.llm.model")
PLACES += ("warm_start.conversations", "env.own.test_path")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One arm. `changes` are the params that differ from the shared ones, nested as in params.yaml.

    `curated`: the arm trains on those tasks that its start sometimes solves (`rla.adaptation.selection`). `own_tasks`:
    its changes of `tasks` apply only to the tasks that it trains on, and it shares the start of arms without these
    changes. `against`: the arm that it is compared with; empty: the design's baseline.
    """

    name: str
    title: str
    changes: Mapping[str, Any]
    curated: bool = False
    own_tasks: bool = False
    against: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """`shared` holds all params except those of the arms."""

    shared: Mapping[str, Any]
    iterations: int
    evaluate_every: int
    seeds: tuple[int, ...]
    baseline: str
    arms: tuple[Arm, ...]
    start_per_seed: bool = False
    measures: tuple[str, ...] = ()
    comparisons: tuple[tuple[str, str], ...] = ()

    def compared(self) -> tuple[tuple[str, str], ...]:
        """The pairs of arms to compare seed by seed, each as (arm, the arm it is compared with)."""
        against = ((arm.name, arm.against or self.baseline) for arm in self.arms)
        return self.comparisons or tuple(pair for pair in against if pair[0] != pair[1])

    def params(self, arm: Arm | None, seed: int | None = None) -> dict[str, Any]:
        """The complete params of an arm, or the shared ones if `arm` is None."""
        made = anchored(merged_params(self.shared, arm.changes if arm else {}))
        return made if seed is None else made | {"seed": seed}


def load_design(path: Path, *, overrides: Mapping[str, Any] | None = None) -> Design:
    """Read and check a design; `overrides` replace shared params. Raises UserError that names file and fault."""
    read = read_mapping(path, remedy="give --design one such as " + str(PIPELINES / "ablation.yaml"))
    _refuse_malformed(path, read)
    params = path.parent / read["params"] if "params" in read else resource("params.yaml")
    shared = merged_params(read_mapping(params, remedy=f"{path} names it as `params`"), overrides or {})
    arms = tuple(_arm_of(name, body) for name, body in read["arms"].items())
    design = Design(
        shared=shared,
        iterations=read["iterations"],
        evaluate_every=read["evaluate_every"],
        seeds=tuple(read["seeds"]),
        baseline=read["baseline"],
        arms=arms,
        start_per_seed=read.get("start_per_seed", False),
        measures=tuple(read.get("measures", ())),
        comparisons=tuple((first, second) for first, second in read.get("comparisons", ())),
    )
    for arm in arms:
        from_mapping(design.params(arm), where=f"{path}, arm {arm.name}")
    return design


def _arm_of(name: str, body: Mapping[str, Any]) -> Arm:
    """The arm for an entry of a checked design."""
    known = {key: value for key, value in body.items() if key != "set"}
    return Arm(**{"name": name, "title": name} | known, changes=body.get("set", {}))


def read_mapping(path: Path, *, remedy: str) -> dict[str, Any]:
    """The mapping in a YAML file. Raises UserError if the file is missing or not a mapping."""
    read = load.read_yaml(path, remedy=remedy)
    if not isinstance(read, dict):
        raise UserError(f"{path}: expected a mapping of keys; see {PIPELINES / 'ablation.yaml'}")
    return read


def _refuse_malformed(path: Path, read: dict[str, Any]) -> None:
    """Raises UserError with the place and the violated rule of `design.schema.json`."""
    from jsonschema import Draft202012Validator

    schema = json.loads(SCHEMA.read_text())
    for error in Draft202012Validator(schema).iter_errors(read):
        place = ".".join(map(str, error.absolute_path)) or "the file"
        raise UserError(f"{path}: {place}: {error.message}; see {SCHEMA}")
    if taken := sorted(name for name in read["arms"] if name == "start" or name.startswith("start-")):
        raise UserError(f"{path}: arm {taken[0]}: folders of starts are called so; give it another name")
    if read["baseline"] not in read["arms"]:
        raise UserError(f"{path}: baseline {read['baseline']} is not one of the arms {', '.join(read['arms'])}")
    named = [name for pair in read.get("comparisons", ()) for name in pair]
    if unknown := [name for name in named if name not in read["arms"]]:
        raise UserError(f"{path}: comparisons: {unknown[0]} is not one of the arms {', '.join(read['arms'])}")
    for name, body in read["arms"].items():
        if body.get("against", name) not in read["arms"]:
            raise UserError(f"{path}: arm {name}: against: {body['against']} is not one of {', '.join(read['arms'])}")
        if body.get("curated") and body.get("own_tasks"):
            raise UserError(f"{path}: arm {name}: curated chooses among the start's tasks; give it or own_tasks")


def anchored(params: dict[str, Any]) -> dict[str, Any]:
    """`params` with absolute paths for local files and folders, because each arm runs in its own folder."""
    for dotted in PLACES:
        *sections, key = dotted.split(".")
        node: Any = params
        for section in sections:
            node = node.get(section) if isinstance(node, Mapping) else None
        value = node.get(key) if isinstance(node, Mapping) else None
        if isinstance(value, str) and value and Path(value).exists():
            change: dict[str, Any] = {key: str(Path(value).resolve())}
            for section in reversed(sections):
                change = {section: change}
            params = merged_params(params, change)
    return params


def merged_params(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` updated with `changes`, section by section."""
    made = dict(base)
    for key, value in changes.items():
        below = made.get(key)
        made[key] = merged_params(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return made


def chosen_arms(design: Design, only: Sequence[str]) -> list[Arm]:
    """The arms with these names, in the design's order; all if `only` is empty. Raises UserError for unknown names."""
    unknown = set(only) - {arm.name for arm in design.arms}
    if unknown:
        known = ", ".join(arm.name for arm in design.arms)
        raise UserError(f"--only {' '.join(sorted(unknown))}: no such arm; there are {known}")
    return [arm for arm in design.arms if not only or arm.name in only]
