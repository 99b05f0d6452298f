"""The starts of arms: tasks, new models and the warm start, made once for all arms that do not change them.

    <root>/start/                     for arms that do not change the start
    <root>/start-<digest>/            for arms that change it in the same way
    <root>/start[-<digest>]-seed<n>/  `start_per_seed`: models and warm start of one seed
    <root>/start[-<digest>]-tasks/    in addition: their tasks, so that all seeds get the same

The digest covers only the changes. If the shared params change, the start is remade in the same folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rla.pipeline.plan import followed
from rla.store.layout import resource
from rla.store.records import content_id
from rla_study.ablation.design import Arm, Design, read_mapping

START = ("make-tasks", "init-model", "warm-start")  # stages whose results arms share
OF_JUDGE = ("enabled", "backend", "prompt")  # the part of the judge's params that a warm start reads
# Parts of `warm_start` that affect the judge's training but not the policy's (`stages.warm_start`).
JUDGES_LESSONS = ("reward", "reward_from_policy", "alike", "calibration")
DIGITS = 8  # of a digest in a folder's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """`params`: the complete params. `tasks_of`: the folder of the start that made its tasks, if it makes none itself.

    `policy_of`: the folder of the start with the same policy, which is reused if it exists. `models`: whether the start
    makes more than tasks.
    """

    folder: str
    params: Mapping[str, Any]
    tasks_of: str | None = None
    policy_of: str | None = None
    models: bool = True


def starts_of(design: Design, arm: Arm, seed: int) -> tuple[Start, ...]:
    """The starts that an arm and seed need, in the order in which they are made; the last one is the arm's own."""
    changes = start_changes(design, arm)
    digest = content_id(json.dumps(changes, sort_keys=True))[:DIGITS]
    name = f"start-{digest}" if changes else "start"
    own = Arm(name=name, title=name, changes=changes)
    plain = "start" if changes and _of_judge_alone(changes) else None
    if not design.start_per_seed:
        return (Start(folder=name, params=design.params(own), policy_of=plain),)
    tasks = Start(folder=f"{name}-tasks", params=design.params(own), models=False)
    same = f"{plain}-seed{seed}" if plain else None
    params = design.params(own, seed)
    return tasks, Start(folder=f"{name}-seed{seed}", params=params, tasks_of=tasks.folder, policy_of=same)


def _of_judge_alone(changes: Mapping[str, Any]) -> bool:
    """Whether these changes to a start leave its policy as it is. Another prompt may change a model's vocabulary."""
    lessons, judge = changes.get("warm_start", {}).keys(), changes.get("judge", {}).keys()
    return changes.keys() <= {"judge", "warm_start"} and lessons <= set(JUDGES_LESSONS) and judge <= {"backend"}


def needed_starts(design: Design, arms: Sequence[Arm], seeds: Sequence[int]) -> list[Start]:
    """All starts of these arms and seeds, each once. Starts whose tasks others use come first."""
    found = {start.folder: start for seed in seeds for arm in arms for start in starts_of(design, arm, seed)}
    return sorted(found.values(), key=lambda start: start.models)


def start_folder(root: Path, start: Start | None = None) -> Path:
    """The folder of `start`; by default the folder for arms that do not change the start."""
    return root / (start.folder if start else "start")


def start_changes(design: Design, arm: Arm) -> dict[str, Any]:
    """An arm's changes to the start: params that the start's stages depend on, if they differ from the shared ones.

    An arm without a judge uses the same start as the others, because teaching the judge does not change the policy. So
    does an arm that makes only its own training tasks.
    """
    changes = dict(_kept_changes(arm.changes, design.shared, _start_params()))
    if arm.own_tasks:
        changes.pop("tasks", None)
    if changes.get("judge", {}).get("enabled") is False:
        judge = {key: value for key, value in changes.pop("judge").items() if key != "enabled"}
        changes |= {"judge": judge} if judge else {}
    return changes


def _kept_changes(
    changes: Mapping[str, Any], shared: Mapping[str, Any], keys: frozenset[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """The parts of nested `changes` below one of the dotted `keys` that differ from `shared`."""
    for key, value in changes.items():
        dotted, same = f"{prefix}{key}", shared.get(key)
        if isinstance(value, Mapping):
            below = same if isinstance(same, Mapping) else {}
            if inner := dict(_kept_changes(value, below, keys, f"{dotted}.")):
                yield key, inner
        elif value != same and any(dotted == one or dotted.startswith(f"{one}.") for one in keys):
            yield key, value


@cache
def _start_params() -> frozenset[str]:
    """The params, as dotted keys, that the stages of the start depend on, without the seed, which belongs to the arm.

    For a warm start DVC tracks the judge's whole section, although the stage reads only a part. Conversations are
    collected if a warm start does not find any.
    """
    stages = read_mapping(resource("dvc.yaml"), remedy="reinstall rla")["stages"]
    known = followed({"stages": {name: stages[name] for name in START}})
    return frozenset(known - {"seed", "judge"} | {f"judge.{key}" for key in OF_JUDGE} | {"collect"})
