"""The part `loop`: SmolLM2-135M learns the built-in household tasks from outcomes alone, and from the whole loop.

One warm start, on which both arms go on side by side, each a process of its own that calls one stage after another. An
arm begins an iteration if there is time for it and for the evaluation after it, so arms differ in their number of
iterations: they are compared at equal time.
"""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from rla_study.ablation.folders import share_artifacts

from rla.cli.app import run
from rla.metrics.intervals import difference
from rla.report.collect import task_outcomes
from rla.report.tables import LOOP
from rla.store.layout import artifact, resource
from study_tests.bench.peer.ours import SHARED
from study_tests.bench.peer.places import OUTCOMES_ALONE
from study_tests.gpu_check.call import Call, measure

ARMS = {"outcomes alone": OUTCOMES_ALONE, "the loop": ()}
ROOT = Path("runs/gpu-check/loop")
# Over pipelines/alfworld-laptop.yaml: a GPU's precision and batches, and as many episodes as `make run` has.
ON_A_GPU = (
    *("generator.dtype=bfloat16", "generator.max_sequences=128", "train_policy.dtype=bfloat16"),
    *("train_rm.dtype=bfloat16", "train_policy.tokens_per_batch=32768", "train_rm.tokens_per_batch=32768"),
    *("tasks.train_scenes=400", "rollout.tasks_per_iteration=16", "rollout.rollouts_per_task=8"),
    "warm_start.policy.tokens_per_pass=16384",
    *("warm_start.policy.examples=1600", "warm_start.policy.steps=150"),
    *("warm_start.reward.examples=480", "warm_start.reward.steps=60"),
    *("evaluation.rollouts_per_task=2", "evaluation.probe_tasks=0"),
)
# Whether everything fits together, in a minute on a CPU.
REHEARSAL = (
    *("env.max_steps=3", "tasks.train_scenes=4", "tasks.test_scenes=2", "tasks.tasks_per_scene=1"),
    *("rollout.tasks_per_iteration=2", "rollout.rollouts_per_task=2", "train_policy.updates=1", "train_rm.updates=1"),
    *("warm_start.scenes=8", "warm_start.policy.examples=8", "warm_start.policy.steps=1"),
    *("warm_start.reward.examples=8", "warm_start.reward.steps=1", "warm_start.reward.batch_size=4"),
    *("evaluation.max_steps=3", "evaluation.rollouts_per_task=1", "generator.max_sequences=8"),
)


def options(call: Call, folder: Path, arm: Sequence[str] = ()) -> list[str]:
    """Of every call of `rla` on a run folder."""
    params, sets = resource("params.yaml"), [*arm]
    if call.model:
        params = resource("pipelines/alfworld-laptop.yaml")
        sets += [*ON_A_GPU, f"model.policy={call.model}", f"model.reward={call.model}"]
    sets += REHEARSAL if call.tiny else ()
    return ["--run", str(folder), "--params", str(params), *(word for text in sets for word in ("--set", text))]


def stage(name: str, words: Sequence[str]) -> float:
    """Call a stage; its seconds. SystemExit if it fails."""
    started = time.monotonic()
    if status := run([name, *words]):
        raise SystemExit(f"{name} ended with {status}")
    gc.collect()
    torch.cuda.empty_cache()  # the other arm's process shares the device
    return round(time.monotonic() - started, 1)


def loop(call: Call) -> None:
    """Warm start and its evaluation, then both arms until the time is up."""
    if not call.tiny or call.model:
        call = replace(call, model=str(call.model_folder().resolve()))
    shutil.rmtree(ROOT, ignore_errors=True)
    start = ROOT / "start"
    words = options(call, start)
    seconds = {name: stage(name, words) for name in ("make-tasks", "init-model", "warm-start")}
    seconds["evaluate"] = stage("evaluate", [*words, "--iteration", "0"])
    call.add(arm="warm start", seconds=seconds, **success(start, 0))
    print(f"warm start done, {call.left:.0f} s left", flush=True)
    calls = [json.dumps(asdict(replace(call, arm=arm)) | {"out": str(call.out)}) for arm in ARMS]
    arms = [subprocess.Popen([sys.executable, "-m", "study_tests.gpu_check.loop", text]) for text in calls]
    if any([process.wait() for process in arms]):
        raise SystemExit("an arm failed")


def turn(call: Call) -> None:
    """One arm: iterations while there is time, then the evaluation."""
    start, target = ROOT / "start", ROOT / call.arm.replace(" ", "-")
    share_artifacts(start, target, SHARED, of_split=())
    words = options(call, target, ARMS[call.arm])
    metrics = json.loads(artifact(start, "eval_metrics", 0).read_text())
    evaluation = 2.2 * metrics["seconds"]  # the other arm evaluates at the same time
    iteration, longest = 0, 0.0
    while call.left > 1.1 * longest + evaluation and not (call.tiny and iteration):
        iteration += 1
        seconds = {name: stage(name, [*words, "--iteration", str(iteration)]) for name in LOOP}
        longest = max(longest, sum(seconds.values()))
        played = list(chain(*task_outcomes(artifact(target, "trajectories", iteration)).values()))
        row = {"seconds": seconds, "total": sum(seconds.values()), "episodes": len(played)}
        call.add(arm=call.arm, iteration=iteration, **row, won=percent(sum(played) / len(played)))
    if not iteration:
        call.add(arm=call.arm, reason="no time was left for an iteration")
        return
    stage("evaluate", [*words, "--iteration", str(iteration)])
    ends = artifact(start, "eval_trajectories", 0), artifact(target, "eval_trajectories", iteration)
    gained = difference(*map(task_outcomes, ends))
    assert gained is not None
    change = {"change": gained.estimate, "change_low": gained.low, "change_high": gained.high}
    call.add(
        arm=call.arm, iterations=iteration, **success(target, iteration), **{k: percent(v) for k, v in change.items()}
    )


def success(folder: Path, iteration: int) -> dict[str, Any]:
    """Of held-out episodes, with its interval, in percent."""
    metrics = json.loads(artifact(folder, "eval_metrics", iteration).read_text())
    return {key: percent(metrics[key]) for key in ("success", "success_low", "success_high")}


def percent(share: float) -> float:
    return round(100 * share, 2)


if __name__ == "__main__":
    called = Call.given()
    if called.arm:
        turn(called)
    else:
        measure(loop)
