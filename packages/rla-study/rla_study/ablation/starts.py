"""Where arms begin: tasks, new models and the warm start, made once for all arms that change nothing of them.

    <root>/start/                     of the arms whose changes the start does not follow
    <root>/start-<digest>/            of the arms that make the same other changes to it
    <root>/start[-<digest>]-seed<n>/  `start_per_seed`: models and warm start of one seed
    <root>/start[-<digest>]-tasks/    beside those: their tasks, so that all seeds are asked the same

The digest is that of the changes alone: what all arms share may change, and then the start is made anew in its place.
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
OF_JUDGE = ("enabled", "backend", "prompt")  # what a warm start reads of the judge
# Parts of `warm_start` that the judge's training follows, and the policy's does not (`stages.warm_start`).
JUDGES_LESSONS = ("reward", "reward_from_policy", "alike", "calibration")
DIGITS = 8  # of a digest that names a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """`params`: the whole params; `tasks_of`: the folder of the start whose tasks it has, where it makes none.

    `policy_of`: the folder of the start that has the same policy. If that is made first, this one takes its policy.
    `models`: whether it makes more than tasks.
    """

    folder: str
    params: Mapping[str, Any]
    tasks_of: str | None = None
    policy_of: str | None = None
    models: bool = True


def starts_of(design: Design, arm: Arm, seed: int) -> tuple[Start, ...]:
    """What an arm and seed begins with, in the order in which it is made; the last is the start itself."""
    changes = start_changes(design, arm)
    digest = content_id(json.dumps(changes, sort_keys=True))[:DIGITS]
    name = f"start-{digest}" if changes else "start"
    own = Arm(name=name, title=name, changes=changes)
    plain = "start" if changes and of_judge_alone(changes) else None
    if not design.start_per_seed:
        return (Start(folder=name, params=design.params(own), policy_of=plain),)
    tasks = Start(folder=f"{name}-tasks", params=design.params(own), models=False)
    same = f"{plain}-seed{seed}" if plain else None
    params = design.params(own, seed)
    return tasks, Start(folder=f"{name}-seed{seed}", params=params, tasks_of=tasks.folder, policy_of=same)


def of_judge_alone(changes: Mapping[str, Any]) -> bool:
    """Whether these changes of a start leave its policy as it is. Another prompt may give models another vocabulary."""
    lessons, judge = changes.get("warm_start", {}).keys(), changes.get("judge", {}).keys()
    return changes.keys() <= {"judge", "warm_start"} and lessons <= set(JUDGES_LESSONS) and judge <= {"backend"}


def needed_starts(design: Design, arms: Sequence[Arm], seeds: Sequence[int]) -> list[Start]:
    """All starts of these arms and seeds, each once, those first that others have their tasks from."""
    found = {start.folder: start for seed in seeds for arm in arms for start in starts_of(design, arm, seed)}
    return sorted(found.values(), key=lambda start: start.models)


def start_folder(root: Path, start: Start | None = None) -> Path:
    """Without `start` that of arms which change nothing of it."""
    return root / (start.folder if start else "start")


def start_changes(design: Design, arm: Arm) -> dict[str, Any]:
    """What an arm changes of the start: params that its stages follow, and that are not what all share anyway.

    An arm that asks no judge begins where the others do: the start that teaches one has the same policy. So does an arm
    that makes only its own training tasks.
    """
    changes = dict(kept_changes(arm.changes, design.shared, start_params()))
    if arm.own_tasks:
        changes.pop("tasks", None)
    if changes.get("judge", {}).get("enabled") is False:
        judge = {key: value for key, value in changes.pop("judge").items() if key != "enabled"}
        changes |= {"judge": judge} if judge else {}
    return changes


def kept_changes(
    changes: Mapping[str, Any], shared: Mapping[str, Any], keys: frozenset[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """The parts of nested `changes` that lie below one of the dotted `keys` and differ from `shared`."""
    for key, value in changes.items():
        dotted, same = f"{prefix}{key}", shared.get(key)
        if isinstance(value, Mapping):
            below = same if isinstance(same, Mapping) else {}
            if inner := dict(kept_changes(value, below, keys, f"{dotted}.")):
                yield key, inner
        elif value != same and any(dotted == one or dotted.startswith(f"{one}.") for one in keys):
            yield key, value


@cache
def start_params() -> frozenset[str]:
    """The params, as dotted keys, that the stages of the start follow; an arm has its own seed.

    DVC follows the judge's whole section for a warm start, of which it reads a part alone. Conversations are collected
    where a warm start finds none.
    """
    stages = read_mapping(resource("dvc.yaml"), remedy="reinstall rla")["stages"]
    known = followed({"stages": {name: stages[name] for name in START}})
    return frozenset(known - {"seed", "judge"} | {f"judge.{key}" for key in OF_JUDGE} | {"collect"})
