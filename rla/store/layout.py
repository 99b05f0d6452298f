"""The places of all artifacts of a run, so that a stage needs only `--run` and `--iteration`, and of the files that
travel with the package (`resource`).

<run>/<i>/judge-accuracy.json              of `rla judge-accuracy`, which is not part of the loop
<run>/splits/<split>/{test/pool,eval/<i>/...}  the same of every further held-out split
<run>/inspect                              logs that `rla view` and `rla export` make of the shards; no stage reads them

A stage of a package may have artifacts of its own: the name of one is its path, such as `0/answers` or `{i}/answers`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rla.errors import UserError

PACKAGE = Path(__file__).resolve().parents[1]

# name -> path below the run ({i} is the iteration, {p} the previous one), command that makes it, kind of shard
ARTIFACTS = {
    "train_tasks": ("0/pool", "make-tasks", "tasks"),
    "test_tasks": ("test/pool", "make-tasks", "tasks"),
    "init_policy": ("init/policy", "init-model", ""),
    "init_rm": ("init/rm", "init-model", ""),
    "first_policy": ("0/policy", "warm-start", ""),
    "first_rm": ("0/rm", "warm-start", ""),
    "previous_policy": ("{p}/policy", "", ""),
    "previous_rm": ("{p}/rm", "", ""),
    "previous_pool": ("{p}/pool", "", ""),
    "previous_candidates": ("{p}/candidates", "", ""),
    "previous_standings": ("{p}/standings", "", ""),
    "trajectories": ("{i}/trajectories", "rollout", "trajectories"),
    "scores": ("{i}/scores", "score-steps", "scores"),
    "images": ("{i}/trajectories-images", "rollout", "images"),  # the pictures of trajectories that have any
    "verdicts": ("{i}/verdicts", "validate-tasks", "verdicts"),
    "standings": ("{i}/standings", "validate-tasks", "standings"),
    "pool": ("{i}/pool", "validate-tasks", "tasks"),
    "candidates": ("{i}/candidates", "adapt-env", "candidates"),
    "policy_rewards": ("{i}/rewards/policy", "compute-rewards", "policy_rewards"),
    "rm_rewards": ("{i}/rewards/rm", "compute-rewards", "rm_rewards"),
    "metrics": ("{i}/metrics.json", "compute-rewards", ""),
    "judge_accuracy": ("{i}/judge-accuracy.json", "judge-accuracy", ""),
    "policy": ("{i}/policy", "train-policy", ""),
    "rm": ("{i}/rm", "train-rm", ""),
    "eval_trajectories": ("eval/{i}/trajectories", "evaluate", "trajectories"),
    "eval_images": ("eval/{i}/trajectories-images", "evaluate", "images"),
    "eval_scores": ("eval/{i}/scores", "evaluate", "scores"),  # if the environment's reward model is evaluated too
    "eval_metrics": ("eval/{i}/metrics.json", "evaluate", ""),
    "probe_trajectories": ("probe/trajectories", "evaluate", "trajectories"),  # labelled steps
    "probe_scores": ("eval/{i}/probe", "evaluate", "scores"),  # the votes of each evaluation's reward model on them
    "report": ("report", "report", ""),
    "inspect": ("inspect", "", ""),
}
PATHS = {name: path for name, (path, _, _) in ARTIFACTS.items()}
MAKERS = {name: command for name, (_, command, _) in ARTIFACTS.items() if command}
SHARD_KINDS = {name: kind for name, (_, _, kind) in ARTIFACTS.items() if kind}

TOGETHER = (("policy_rewards", "rm_rewards"), ("verdicts", "standings", "pool"))  # shards that one call makes

SPLITS = "splits"


def held_out_root(run: Path, splits: Sequence[str], split: str) -> Path:
    """The folder below which pool and evaluations of a held-out split lie: the run's own for the first of `splits`.
    Raises UserError for a split that is not one of them.
    """
    if split not in splits:
        raise UserError(f"--split {split}: not a held-out split of this run; choose one of {', '.join(splits)}")
    return run if split == splits[0] else run / SPLITS / split


def further_splits(run: Path) -> dict[str, Path]:
    """The held-out splits of a run except its main one, in order of their names, each with its root."""
    return {path.name: path for path in sorted((run / SPLITS).glob("*")) if path.is_dir()}


def path_below(name: str) -> str:
    """The path of the artifact `name` below the run, with `{i}` or `{p}` if each iteration has one."""
    return name if "/" in name else PATHS[name]


UNTRAINED = "eval/untrained"  # of a run: the evaluation of a model that exists, before its warm start


def artifact(run: Path, name: str, iteration: int) -> Path:
    return run / path_below(name).format(i=iteration, p=iteration - 1)


def making_call(path: Path) -> str:
    """The call that makes the file or folder `path`, in backquotes, for an error: `rla rollout --run r --iteration 1`.

    "the stage that makes it" for a path that is not in a run.
    """
    # `eval/2/trajectories` is not `2/trajectories` of another run, and `0/pool` not the pool of an iteration.
    by_depth = sorted(MAKERS.items(), key=lambda item: (-PATHS[item[0]].count("/"), "{i}" in PATHS[item[0]]))
    for place in (path, *path.parents):
        for name, command in by_depth:
            pattern = PATHS[name].replace(".", r"\.").replace("{i}", r"(?P<i>\d+)")
            if found := re.fullmatch(rf"(?:(?P<run>.+?)/)?(?:{SPLITS}/[^/]+/)?{pattern}", place.as_posix()):
                run = Path(found["run"] or ".")
                words = ["rla", command, "--run", str(run)]
                number = found.groupdict().get("i")
                return f"`{shlex.join([*words, *(['--iteration', number] if number else [])])}`"
    return "the stage that makes it"


def rerun(path: Path) -> str:
    """The remedy for a flaw of a shard's file."""
    return f"rerun {making_call(path)} with --overwrite"


def places_of(run: Path, name: str) -> Iterator[Path]:
    """The paths of the artifact `name` of every iteration that has it."""
    own = path_below(name)
    others = {*PATHS.values()} - {own}
    for path in run.glob(own.format(i="[0-9]*", p="[0-9]*")):
        if path.relative_to(run).as_posix() not in others:  # `0/pool` is not a pool of an iteration
            yield path


def made_together(run: Path, shard: Path) -> list[Path]:
    """The other shards that the call which makes `shard` makes; none for a folder that lies elsewhere."""
    for iteration in map(int, filter(str.isdecimal, shard.relative_to(run).parts[:1] if run in shard.parents else ())):
        for names in TOGETHER:
            places = [artifact(run, name, iteration) for name in names]
            if shard in places:
                return [place for place in places if place != shard]
    return []


def numbered_folders(folder: Path) -> list[int]:
    """The numbers that name folders of `folder`, in order."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.is_dir() and path.name.isdecimal())


def resource(name: str) -> Path:
    """The file or folder `name`, such as `schemas` or `pipelines/small.yaml`.

    A wheel has them below `rla/_data`, a checkout at its top. Raises UserError if the installation lacks it.
    """
    for top in (PACKAGE / "_data", PACKAGE.parent):
        path = top / name
        if path.exists():
            return path
    raise UserError(f"{name}: not part of this installation of rla; reinstall it")
