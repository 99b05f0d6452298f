"""A pipeline folder small enough for tests: scripted replies, models of a few thousand weights."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

from rla.pipeline.run import become_stage, start_server
from rla.store.layout import resource

PARAMS = """
seed: 3
env: {name: alfworld, max_steps: 6, omit_commands: [look, inventory, help, examine]}
tasks: {size: tiny, train_scenes: 3, test_scenes: 2, tasks_per_scene: 2}
model: {hidden_size: 32, layers: 1, heads: 2, intermediate_size: 32, context: 512}
launch: {threads: 1}
generator: {backend: scripted, context: 512}
policy: {reply: text, repeat_task: false, history: full, decoding: admissible, max_tokens: 16, temperature: 1.0}
judge: {prompt: plain, decoding: admissible, max_tokens: 16, temperature: 1.0}
rollout: {tasks_per_iteration: 4, rollouts_per_task: 4}
credit: {reward_model_band: [0.0, 1.0]}
train_policy: {lr: 1.0e-3, updates: 2}
train_rm: {lr: 1.0e-3, updates: 2}
adaptation: {max_tasks: 2}
warm_start: {enabled: false}
evaluation: {rollouts_per_task: 1, max_steps: 6}
"""
VOLATILE = ("timings", "report", "tensorboard")  # wall-clock times, and what shows them
MEASURED = {"seconds", "tokens_per_second"}


def environment() -> dict[str, str]:
    """The caller's environment with this interpreter's programs first, one thread and no analytics."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    extra = {"PATH": path, "OMP_NUM_THREADS": "1", "DVC_NO_ANALYTICS": "1"}
    return os.environ | extra


def make_pipeline(folder: Path, *, iterations: int, params: str = PARAMS) -> Path:
    """`folder` with dvc.yaml, params.yaml and a plan, ready for `dvc repro`."""
    folder.mkdir(parents=True)
    shutil.copy(resource("dvc.yaml"), folder)
    (folder / "params.yaml").write_text(params)
    run(["dvc", "init", "--no-scm", "--quiet"], folder)
    plan(folder, iterations=iterations)
    return folder


def plan(folder: Path, *, iterations: int) -> None:
    run(["rla", "plan", "--iterations", str(iterations), "--run", "runs/t"], folder)


def run(command: list[str], folder: Path) -> str:
    """Run to the end; the output. Fails with what the command printed."""
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def until(condition: Callable[[], object], *, seconds: float) -> None:
    """Wait for `condition`; fails where it does not hold in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a thread of the process runs: while one ends, the first may be a zombie already and locks still held."""
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            if path.read_text().rsplit(")", 1)[1].split()[0] not in "ZX":
                return True
    return False


def killed_after(seconds: float, command: list[str], folder: Path) -> bool:
    """Start the command and kill its whole process group after `seconds`; False where it was done before."""
    end = time.monotonic() + seconds
    return killed_when(lambda: time.monotonic() >= end, command, folder)


def killed_when(moment: Callable[[], bool], command: list[str], folder: Path) -> bool:
    """Start the command and kill its whole process group once `moment` has come; False where it was done before."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while process.poll() is None:
            if moment():
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return True
            time.sleep(0.002)
    assert process.returncode == 0, (folder / "log").read_text()
    return False


def forked(command: list[str], folder: Path, *, moment: Callable[[], bool] = lambda: False) -> bool:
    """Call a stage as `rla run` does, which starts in a moment, so that kills fall into its work. As `killed_when`."""
    start_server()
    arguments = (shlex.join(command), environment(), str(folder))
    process = get_context("forkserver").Process(target=become_stage, args=arguments)
    process.start()
    while process.is_alive():
        if moment():
            process.kill()
            process.join()
            return True
        time.sleep(0.002)
    assert process.exitcode == 0
    return False


def forked_until(seconds: float, command: list[str], folder: Path) -> bool:
    """`forked`, killed after `seconds`."""
    end = time.monotonic() + seconds
    return forked(command, folder, moment=lambda: time.monotonic() >= end)


def contents(folder: Path) -> dict[str, str]:
    """Digest of every file that a run has made, wall-clock times left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and inside.parts[0] not in VOLATILE:
            content = path.read_bytes()
            hidden = any(part.startswith(".") for part in inside.parts)  # left by a killed call, perhaps cut in half
            if not hidden and path.name in ("metrics.json", "metrics.jsonl"):
                rows = [json.loads(content)] if path.suffix == ".json" else map(json.loads, content.splitlines())
                content = repr([{k: v for k, v in row.items() if k not in MEASURED} for row in rows]).encode()
            found[str(inside)] = hashlib.sha256(content).hexdigest()
    return found
