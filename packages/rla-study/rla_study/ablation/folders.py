"""The folder of an arm: a DVC pipeline of its own that uses the files of the arm's start.

    <root>/start/            tasks, warm start and its evaluation; several if arms differ (`rla_study.ablation.starts`)
    <root>/<arm>/seed<n>/    the loop of one arm and seed
      dvc.yaml               the package's pipeline without the stages that the start has run
      params.yaml            the shared params updated with the arm's, so that DVC follows them key by key
      iterations.yaml, run/  as in any run

The start's artifacts are hard-linked into each arm's run, because files of a finished artifact are never written again.
If the start is remade, they are linked again, and DVC repeats the arm.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.models.checkpoint import MANIFEST, base_of
from rla.pipeline.plan import Plan, document
from rla.pipeline.run import ready_dvc
from rla.store.atomic import write_text
from rla.store.layout import artifact, further_splits, resource
from rla_study.ablation.design import Arm, Design
from rla_study.ablation.starts import START, Start, start_folder, starts_of

TASKS = ("train_tasks", "test_tasks")
SHARED = (*TASKS, "first_policy", "first_rm", "eval_trajectories", "eval_metrics")
OF_SPLIT_SHARED = ("test_tasks", "eval_trajectories", "eval_metrics")  # for every further held-out split
RUN = Path("run")
RAW = RUN / "raw" / "pool"  # of a curated arm: the tasks of its start, which the start plays
PLAYED = RUN / "curation"


def arm_folder(root: Path, arm: Arm, seed: int) -> Path:
    return root / arm.name / f"seed{seed}"


def make_start(root: Path, start: Start) -> Path:
    """Write the folder whose pipeline makes what the arms share. If starts have a common pool, the start with the tasks
    comes first.
    """
    folder = start_folder(root, start)
    plan = document(Plan(iterations=1, run=RUN), {}) | {"iterations": {}, "evaluations": [0], "last": 0}
    left_out = ["report"]  # there are no iterations to report
    if not start.models:
        left_out += ["init-model", "warm-start", "evaluate"]
    if start.tasks_of is not None:
        left_out.append("make-tasks")
    write_pipeline(folder, dict(start.params), plan, leave_out=tuple(left_out))
    if start.tasks_of is not None:
        share_artifacts(root / start.tasks_of / RUN, folder / RUN, TASKS, of_split=TASKS[1:])
    if start.policy_of is not None:
        _share_policy(root / start.policy_of / RUN, folder / RUN)
    return folder


def make_arm(root: Path, design: Design, arm: Arm, seed: int) -> Path:
    """The folder of one arm and seed, with the start's artifacts linked into its run. Raises UserError if the start is
    incomplete.
    """
    folder = arm_folder(root, arm, seed)
    plan = document(Plan(iterations=design.iterations, evaluate_every=design.evaluate_every, run=RUN), {})
    plan["evaluations"] = [number for number in plan["evaluations"] if number > 0]
    params = design.params(arm, seed)
    split = str(params.get("tasks", {}).get("train_split", "train"))
    own_pool = arm.curated or arm.own_tasks
    more = (
        _own_pool_stages(split=split, seed=int(design.shared.get("seed", 0)), curated=arm.curated) if own_pool else {}
    )
    write_pipeline(folder, params, plan, leave_out=START, more=more)
    start = start_folder(root, starts_of(design, arm, seed)[-1]) / RUN
    shared = [name for name in SHARED if not (own_pool and name == "train_tasks")]
    share_artifacts(start, folder / RUN, shared, of_split=OF_SPLIT_SHARED)
    _share_probe(start, folder / RUN)
    if arm.curated:
        share_files(artifact(start, "train_tasks", 0), folder / RAW)
    return folder


def _own_pool_stages(*, split: str, seed: int, curated: bool) -> dict[str, Any]:
    """The stages before the loop for an arm that makes its own training tasks.

    `curated`: the start plays the tasks first, and the tasks that it sometimes solves are kept. `seed`: the start's
    seed for `make-tasks`, because that stage makes the tasks again before it chooses.
    """
    pool, kept = artifact(RUN, "train_tasks", 0), {"cache": False, "persist": True}
    making: dict[str, Any] = {
        "cmd": f"rla make-tasks ${{options}} --split {split} --seed {seed} --overwrite",
        "params": [{"${params}": ["env", "tasks"]}],
        "outs": [{str(pool): kept}],
    }
    if not curated:
        return {"own-tasks": making}
    policy = artifact(RUN, "first_policy", 0)
    playing = {
        "cmd": f"rla evaluate ${{options}} --iteration 0 --tasks {RAW} --policy {policy} "
        f"--out {PLAYED}/trajectories --metrics {PLAYED}/metrics.json --overwrite",
        "params": [{"${params}": ["seed", "env", "generator", "policy", "evaluation"]}],
        "deps": [str(RAW), str(policy / "checkpoint.json")],
        "outs": [{str(PLAYED): kept}],
    }
    choosing = {"cmd": f"{making['cmd']} --curate {PLAYED}/trajectories", "deps": [str(PLAYED)]}
    return {"play-pool": playing, "curate": making | choosing}


def write_pipeline(
    folder: Path,
    params: dict[str, Any],
    plan: dict[str, Any],
    *,
    leave_out: tuple[str, ...],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write dvc.yaml, params.yaml and iterations.yaml, each only if its content changes, because DVC compares contents.
    `more`: stages in addition to those of the package.
    """
    import yaml

    pipeline = yaml.safe_load(resource("dvc.yaml").read_text())
    pipeline["stages"] |= more or {}
    for name in leave_out:
        del pipeline["stages"][name]
    if set(START) <= set(leave_out):  # the stages of the start track seed and environment on behalf of all later stages
        pipeline["stages"]["rollout"]["do"]["params"].append({"${params}": ["seed", "env"]})
    documents = {"dvc.yaml": pipeline, "params.yaml": params, "iterations.yaml": plan}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in documents.items():
        text = yaml.safe_dump(content, sort_keys=False)
        if not (folder / name).exists() or (folder / name).read_text() != text:
            write_text(folder / name, text)
    ready_dvc(folder)


def share_artifacts(source: Path, target: Path, names: Sequence[str], *, of_split: Sequence[str]) -> None:
    """Link artifacts of one run into another. `of_split`: artifacts that exist for every further held-out split."""
    for name in names:
        _share_artifact(source, target, name)
    for split in further_splits(source).values():
        for name in of_split:
            found = artifact(split, name, 0)
            share_files(found, target / found.relative_to(source))


def _share_artifact(source: Path, target: Path, name: str) -> None:
    """Link one artifact, and the weights below it if it is an adapter, which are elsewhere in the run."""
    made = artifact(source, name, 0)
    share_files(made, artifact(target, name, 0))
    base, top = base_of(made / "model") if made.is_dir() else None, Path(os.path.normpath(source.absolute()))
    if base is not None and base.folder.is_relative_to(top):
        share_files(base.folder, target / base.folder.relative_to(top))


def _share_probe(source: Path, target: Path) -> None:
    """Link the frozen probe with its labels, and the first reward model's answers on it, if they were measured."""
    scores, probe = artifact(source, "probe_scores", 0), artifact(source, "probe_trajectories", 0).parent
    if scores.exists():
        for found in (scores, probe):
            share_files(found, target / found.relative_to(source))


def _share_policy(source: Path, target: Path) -> None:
    """Link the warm-started policy of another start, unless this start has a policy. `warm-start` keeps it if it would
    make the same one, and replaces it otherwise.
    """
    made, wanted = artifact(source, "first_policy", 0), artifact(target, "first_policy", 0)
    if (made / MANIFEST).exists() and not wanted.exists():
        _share_artifact(source, target, "first_policy")


def share_files(source: Path, target: Path) -> None:
    """Link the files of `source` to `target` unless they are linked already. A link that a killed call left half done
    is made again.
    """
    if not source.exists():
        raise UserError(f"{source}: the start of the ablation is incomplete; run `rla ablation run` again")
    if target.exists() and files(source) == files(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    for left in (partial, target):
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    if source.is_file():
        os.link(source, target)
        return
    shutil.copytree(source, partial, copy_function=os.link)
    partial.rename(target)


def files(path: Path) -> set[tuple[str, int]]:
    """Names and inodes of all files: equal for hard links to the same files."""
    found = [path] if path.is_file() else [below for below in path.rglob("*") if below.is_file()]
    return {(str(one.relative_to(path)), one.stat().st_ino) for one in found}
