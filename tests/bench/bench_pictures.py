"""Memory and time of stages in an environment that shows pictures: `make -f tests/bench/Makefile bench-pictures`.

Episodes show distinct pictures of 120 KB, up to four a task. Each figure is of a process of its own. The table has the
peak memory of `rollout`, `score-steps` and `train-policy` for more and more tasks, beside the bytes of the pictures on
disk: memory is to follow what is in flight, which is the same in all rows. The last line has the trainer's speed on the
same rows, packed and one sequence a pass.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rla.cli.app import run
from rla.store.reading import read_rows
from tests.bench.resident import peak_resident
from tests.squares import PARAMS, squares_installed

TASKS, SIDE = (16, 64, 192), 200
STAGES = ("rollout", "score-steps", "train-policy")
COMMON = {
    "env.own.noise": SIDE,
    "tasks.train_scenes": TASKS[-1],
    "model.context": 512,
    "generator.context": 512,
    "rollout.concurrency": 8,
    "rollout.rollouts_per_task": 4,
    "train_policy.tokens_per_batch": 1024,
    "train_policy.kl_coef": 0.0,
    "warm_start.enabled": "false",
}


def call(stage: str, *, tasks: int, more: dict[str, object] | None = None) -> None:
    settings = COMMON | {"rollout.tasks_per_iteration": tasks} | (more or {})
    flags = [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
    numbered = [] if stage in ("make-tasks", "init-model") else ["--iteration", "1"]
    with squares_installed(), contextlib.redirect_stdout(io.StringIO()):
        assert run([stage, "--run", "r", *numbered, "--overwrite", *flags]) == 0


def measured(stage: str, tasks: int, *, batch: int) -> tuple[float, float]:
    """(peak memory in MB, seconds) of one stage in a process of its own."""
    arguments = ["--stage", stage, "--tasks", str(tasks), "--batch", str(batch)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.bench_pictures", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    peak, seconds = map(float, done.stdout.split()[-2:])
    return peak, seconds


def trained(tasks: int, *, batch: int) -> float:
    """Tokens a second of `train-policy`, as it says itself."""
    measured("train-policy", tasks, batch=batch)
    return float(json.loads(Path("r/1/policy/metrics.json").read_text())["tokens_per_second"])


def one(stage: str, tasks: int, batch: int) -> None:
    """A stage in this process; prints its peak and its time."""
    began = time.perf_counter()
    call(stage, tasks=tasks, more={"train_policy.tokens_per_batch": batch})
    print(peak_resident() / 2**20, time.perf_counter() - began)


def pictures() -> tuple[int, float]:
    """How many of the run there are, and their MB on disk."""
    rows = read_rows(Path("r/1/trajectories-images"), "images")
    return len(rows), sum(len(row["png"]) for row in rows) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage")
    parser.add_argument("--tasks", type=int, default=0)
    parser.add_argument("--batch", type=int, default=1024)
    given = parser.parse_args()
    if given.stage:
        one(given.stage, given.tasks, given.batch)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("params.yaml").write_text(PARAMS)
        for stage in ("make-tasks", "init-model"):  # in processes of their own: a child begins with its parent's peak
            measured(stage, TASKS[0], batch=1024)
        print(f"{'tasks':>6} {'pictures':>9} {'PNG MB':>8}", *(f"{f'{stage} MB':>16} {'s':>6}" for stage in STAGES))
        for tasks in TASKS:
            found = []
            for stage in STAGES:
                found.append(measured(stage, tasks, batch=1024))
                for step in ("validate-tasks", "compute-rewards") if stage == "score-steps" else ():
                    measured(step, tasks, batch=1024)
            count, stored = pictures()
            print(f"{tasks:>6} {count:>9} {stored:>8.1f}", *(f"{peak:>16.0f} {took:>6.1f}" for peak, took in found))
        packed, single = (trained(TASKS[-1], batch=batch) for batch in (1024, 1))
        print(f"train-policy: packed {packed:.0f} tokens/s, one sequence a pass {single:.0f} tokens/s")


if __name__ == "__main__":
    main()
