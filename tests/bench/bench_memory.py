"""Peak memory of `rollout` and `score-steps` for 1,000 to 10,000 episodes: `make -f tests/bench/Makefile bench-memory`.

Scripted replies on built-in ALFWorld tasks, eight episodes of at most 12 steps a task, three judgements a step. Each
figure is of a process of its own; all draw their tasks from the same pool.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rla.cli.app import run
from tests.bench.resident import peak_resident
from tests.integration.pipelines import PARAMS

EPISODES, ROLLOUTS = (1_000, 5_000, 10_000), 8
STAGES = ("rollout", "score-steps")
SETTINGS = {
    "env.max_steps": 12,
    "rollout.rollouts_per_task": ROLLOUTS,
    "tasks.train_scenes": EPISODES[-1] // ROLLOUTS // 2,
    "generator.context": 4096,
    "model.context": 4096,
}


def call(*arguments: str, episodes: int) -> None:
    settings = SETTINGS | {"rollout.tasks_per_iteration": episodes // ROLLOUTS}
    flags = [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
    with contextlib.redirect_stdout(io.StringIO()):
        assert run([*arguments, "--run", "r", *flags]) == 0


def measure(stage: str, episodes: int) -> None:
    """Print the process's peak MiB and the seconds that the stage took."""
    started = time.perf_counter()
    shard = f"trajectories-{episodes}"
    if stage == "rollout":
        call(stage, "--out", shard, episodes=episodes)
    else:
        call(stage, "--trajectories", shard, "--out", f"scores-{episodes}", episodes=episodes)
    print(peak_resident() / 2**20, time.perf_counter() - started)


def prepare() -> None:
    Path("params.yaml").write_text(PARAMS)
    call("make-tasks", "--split", "train", episodes=EPISODES[0])
    call("init-model", episodes=EPISODES[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage")
    parser.add_argument("--episodes", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.stage:
        prepare() if chosen.stage == "prepare" else measure(chosen.stage, chosen.episodes)
        return
    with tempfile.TemporaryDirectory() as folder:
        child(folder, "prepare", 0)
        for stage in STAGES:
            for episodes in EPISODES:
                peak, seconds = map(float, child(folder, stage, episodes).split())
                size = sum(path.stat().st_size for path in Path(folder).rglob(f"*-{episodes}/*.parquet")) / 2**20
                print(f"{stage:12} {episodes:6} episodes: peak {peak:5.0f} MiB, {seconds:5.1f} s, shard {size:.0f} MiB")


def child(folder: str, stage: str, episodes: int) -> str:
    command = [sys.executable, "-m", "tests.bench.bench_memory", "--stage", stage, "--episodes", str(episodes)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    main()
