"""The small run that is attacked: every stage once, from a folder as it is before the stage to one as it is after it.

A case is a call and the folder that it begins from. *Fresh* cases are the calls of a run of two iterations, in order.
*Replacing* cases make the outputs of the second iteration anew with another seed and `--overwrite`. Beside what `rla`
writes the folder holds files of a user, which no call may touch.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rla.envs.registry import installed_environments
from rla.store.layout import PATHS
from tests.attack.calls import call, fault
from tests.integration.pipelines import VOLATILE, contents

PARAMS = """
seed: 3
env: {name: alfworld, max_steps: 4, omit_commands: [look, inventory, help, examine]}
tasks: {size: tiny, train_scenes: 2, test_scenes: 1, tasks_per_scene: 2}
model: {hidden_size: 16, layers: 1, heads: 2, intermediate_size: 16, context: 512}
launch: {threads: 1}
generator: {backend: scripted, context: 512}
policy: {reply: text, repeat_task: false, history: full, decoding: admissible, max_tokens: 16, temperature: 1.0}
judge: {prompt: plain, decoding: admissible, votes: 2, max_tokens: 16, temperature: 1.0}
rollout: {tasks_per_iteration: 2, rollouts_per_task: 2}
credit: {estimator: step, reward_model_band: [0.0, 1.0]}
train_policy: {lr: 1.0e-3, updates: 2}
train_rm: {lr: 1.0e-3, updates: 2}
adaptation: {max_tasks: 2}
warm_start: {scenes: 1, policy: {steps: 1, examples: 16}, reward: {steps: 1, examples: 16}}
evaluation: {rollouts_per_task: 1, max_steps: 4}
"""
LOOP = ("rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm", "adapt-env")
FOREIGN = (
    "r/thesis.txt",
    "r/.kept",
    "r/1/notes/numbers.csv",
    "r/1/trajectories-of-mine/part-00000.parquet",
    "r/2/policy-old/weights.bin",
)
# Of the report: they show seconds.
TIMED = {"report.txt", "report.html", "report.json", "metrics.json", "seconds.svg"}


@dataclass(frozen=True, slots=True)
class Case:
    """A call. `end`: the folder that it begins from is that of the whole run, and not that of the call before it.

    `then`: a call that follows before folders are compared. A stage in an empty folder makes both models and needs one;
    where it was stopped between them, the other is made by the stage that needs it.
    """

    name: str
    arguments: tuple[str, ...]
    end: bool = False
    then: tuple[str, ...] = ()


def _stage(name: str, *options: str, label: str = "", end: bool = False) -> Case:
    return Case(label or name, (name, "--run", "r", *options), end)


def _iteration(number: int) -> list[Case]:
    on = ("--iteration", str(number))
    loop = [_stage(name, *on, label=f"{name}-{number}") for name in LOOP]
    return [*loop, _stage("judge-accuracy", *on, label=f"judge-accuracy-{number}")]


BOTH = ("init-model", "--run", "alone")
CASES = (
    Case("plan", ("plan", "--iterations", "2", "--run", "r")),
    _stage("make-tasks"),
    _stage("init-model"),
    _stage("warm-start"),
    _stage("evaluate"),
    *_iteration(1),
    *_iteration(2),
    _stage("evaluate", "--iteration", "2", "--slice", "2/2", label="evaluate-slice-2"),
    _stage("evaluate", "--iteration", "2", "--slice", "1/2", label="evaluate-slice-1"),
    _stage("report"),
    _stage("prune", "--set", "checkpoints.keep=1", end=True),
    _stage("evaluate", "--iteration", "1", label="evaluate-late", end=True),
    Case("rollout-alone", ("rollout", "--run", "alone"), end=True, then=BOTH),
    Case("evaluate-alone", ("evaluate", "--run", "alone"), end=True, then=BOTH),
    *(
        Case(f"make-tasks-{env}", ("make-tasks", "--env", env, "--run", "alone"), end=True)
        for env in ("coding",)
        if env in installed_environments()
    ),
    *(
        _stage(name, "--iteration", "2", "--seed", "4", "--overwrite", label=f"{name}-again", end=True)
        for name in (*LOOP, "evaluate", "judge-accuracy", "report")
    ),
    *(
        _stage(name, "--seed", "4", "--overwrite", label=f"{name}-again", end=True)
        for name in ("make-tasks", "init-model", "warm-start")
    ),
)
BY_NAME = {case.name: case for case in CASES}
FRESH = tuple(case for case in CASES if not case.end)
COMPLETE = "complete"  # the folder after all fresh cases


def digests(folder: Path) -> dict[str, str]:
    """Every file and folder below `folder` with a digest; what shows the time of day counts by its name alone."""
    found = {}
    for run in sorted(path for path in folder.iterdir() if path.is_dir()):
        found |= {f"{run.name}/{name}": digest for name, digest in contents(run).items()}
        for path in sorted(run.rglob("*")):
            inside = path.relative_to(run)
            if path.is_dir() and inside.parts[0] not in VOLATILE:
                found[f"{run.name}/{inside}/"] = "folder"
            elif path.is_file() and inside.parts[0] == "report":
                found[f"{run.name}/{inside}"] = "there" if path.name in TIMED else _digest(path)
    return found | {path.name: _digest(path) for path in folder.iterdir() if path.is_file()}


def difference(expected: dict[str, str], found: dict[str, str]) -> str | None:
    """What is lost, changed or left over, in a line."""
    lost = [name for name in expected if name not in found]
    changed = [name for name in expected if name in found and found[name] != expected[name]]
    left = [name for name in found if name not in expected]
    foreign = [name for name in FOREIGN if name in expected and (name in lost or name in changed)]
    parts = (("lost of the user", foreign), ("lost", lost), ("differs", changed), ("left over", left))
    said = [f"{what}: {', '.join(names[:4])}{' ...' * (len(names) > 4)}" for what, names in parts if names]
    return "; ".join(said) or None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class World:
    """Where the small run lies, folder by folder, and what each call has to come to."""

    folder: Path
    seed: int
    cases: tuple[Case, ...] = CASES  # that are tried

    def before(self, case: Case) -> Path:
        return self.folder / "before" / (COMPLETE if case.end else case.name)

    @property
    def complete(self) -> Path:
        return self.folder / "before" / COMPLETE

    def known(self, case: Case) -> bool:
        """Whether the case was called undisturbed."""
        return (self.folder / f"after-{case.name}.json").exists()

    def after(self, case: Case) -> dict[str, str]:
        """`digests` after an undisturbed call."""
        return dict(json.loads((self.folder / f"after-{case.name}.json").read_text()))

    def operations(self, case: Case) -> list[tuple[str, str, int]]:
        """(operation, path, bytes of a write) of an undisturbed call, in order."""
        lines = (self.folder / f"operations-{case.name}.txt").read_text().splitlines()
        return [(name, path, int(size)) for name, path, size in (line.split("\t") for line in lines)]


def grow(world: World, cases: Sequence[Case] = FRESH) -> None:
    """Make what is missing of the small run: these calls in their order, and with all of them the complete folder.

    Raises RuntimeError where an undisturbed call fails.
    """
    if world.complete.exists() or (all(map(world.known, cases)) and cases != FRESH):
        return
    grown = world.folder / "grown" / "here"
    for old in (world.folder / "before", grown):
        shutil.rmtree(old, ignore_errors=True)
    grown.mkdir(parents=True)
    (grown / "params.yaml").write_text(PARAMS)
    for name in FOREIGN:
        (grown / name).parent.mkdir(parents=True, exist_ok=True)
        (grown / name).write_text(f"of the user: {name}")
    for case in cases:
        shutil.copytree(grown, world.before(case))
        undisturbed(world, case, grown)
    if cases == FRESH:
        shutil.copytree(grown, world.complete.with_name("partial"))
        world.complete.with_name("partial").rename(world.complete)


def undisturbed(world: World, case: Case, folder: Path) -> None:
    """Call it once in `folder`; keep what it did and what it came to."""
    log = os.open(world.folder / f"operations-{case.name}.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    ended = call(case.arguments, folder, log=log)
    os.close(log)
    if ended.code != 0 or fault(ended):
        raise RuntimeError(f"{case.name}, undisturbed: {fault(ended)}\n{ended.said}")
    place = world.folder / f"after-{case.name}.json"
    place.with_suffix(".tmp").write_text(json.dumps(digests(folder)))
    place.with_suffix(".tmp").rename(place)


def grow_late(world: World, case: Case) -> None:
    """The same for a case that begins from the complete run; nothing where it is known already."""
    if world.known(case):
        return
    folder = world.folder / "late" / case.name / "here"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(world.complete, folder)
    undisturbed(world, case, folder)
    shutil.rmtree(folder.parent)


SHARDS = {  # path below the run -> kind; those of the small run that hold rows
    "0/pool": "tasks",
    "test/pool": "tasks",
    **{
        PATHS[name].format(i=number): kind
        for number in (1, 2)
        for name, kind in (
            ("trajectories", "trajectories"),
            ("scores", "scores"),
            ("verdicts", "verdicts"),
            ("standings", "standings"),
            ("pool", "tasks"),
            ("candidates", "candidates"),
            ("policy_rewards", "policy_rewards"),
            ("rm_rewards", "rm_rewards"),
        )
    },
    "eval/0/trajectories": "trajectories",
}
