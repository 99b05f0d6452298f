"""A Slurm of one machine for tests, as far as `rla` uses it: `sbatch --wait` of an array, and `scancel`.

What it takes from Slurm (sbatch.c and slurmd's req.c of 2026):

- An array's tasks are no children of sbatch. They go on when sbatch is killed, and end by scancel.
- `--parsable` prints the number of the job before sbatch waits; lines are not held back.
- A task gets a copy of the script, /dev/null as its input, and SLURM_ARRAY_TASK_ID.
- Who ends a task sends SIGTERM to all of its processes, then SIGKILL, and says so in the task's log.
- The exit status of a job that was cancelled or ran out of time counts as 0, which is what `sbatch --wait` returns.

`FAKE_SLURM` names the folder for its state. Files in it steer it: `refuse` holds the message of a refusal, `seconds`
the time limit, `slots` how many tasks run at once.
"""

from __future__ import annotations

import getopt
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path(os.environ.get("FAKE_SLURM", "/nonexistent"))
TAKES = ["array=", "chdir=", "job-name=", "nodes=", "ntasks=", "output=", "partition="]
FLAGS = ["parsable", "requeue", "wait"]
GRACE = 3.0  # seconds between SIGTERM and SIGKILL


def install(folder: Path) -> Path:
    """Put `sbatch` and `scancel` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("sbatch", "scancel"):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} {name} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def sbatch(arguments: list[str]) -> int:
    try:
        found, rest = getopt.getopt(arguments, "", [*TAKES, *FLAGS])
    except getopt.GetoptError as error:
        print(f"sbatch: {error}", file=sys.stderr)
        return 1
    if (STATE / "refuse").exists():
        print(f"sbatch: error: Batch job submission failed: {(STATE / 'refuse').read_text()}", file=sys.stderr)
        return 1
    options = {name.removeprefix("--"): value for name, value in found}
    job = STATE / str(101 + len(list(STATE.glob("[0-9]*"))))
    job.mkdir()
    (job / "name").write_text(options["job-name"])
    (job / "arguments").write_text("\n".join(arguments))
    shutil.copy(rest[0], job / "script")
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, "controller", str(job), options["array"], options["output"]],
        cwd=options["chdir"],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    print(job.name, flush=True)
    while "wait" in options and not (job / "ended").exists():
        time.sleep(0.05)
    return int((job / "ended").read_text()) if "wait" in options else 0


def controller(job: Path, array: str, output: str) -> None:
    """What slurmctld and slurmd do with a job: run its tasks, `slots` at once."""
    waiting = indices(array)
    slots = int(text_of("slots") or 2)
    limit = float(text_of("seconds") or 1e9)
    running: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
    highest = 0
    while waiting or running:
        cancelled = (job / "cancelled").exists()
        if cancelled:
            waiting = []
        while waiting and len(running) < slots:
            task = waiting.pop(0)
            running[task] = (started(job, task, output), time.monotonic())
        for task, (process, since) in list(running.items()):
            if process.poll() is not None:
                highest = max(highest, process.returncode if process.returncode > 0 else int(process.returncode < 0))
                del running[task]
            elif cancelled or time.monotonic() - since > limit:
                end(process, log_of(output, task), cancelled=cancelled)
                del running[task]
        time.sleep(0.02)
    (job / "ended.tmp").write_text(str(highest))
    (job / "ended.tmp").rename(job / "ended")


def started(job: Path, task: int, output: str) -> subprocess.Popen[bytes]:
    own = {"SLURM_JOB_ID": job.name, "SLURM_ARRAY_JOB_ID": job.name, "SLURM_ARRAY_TASK_ID": str(task)}
    with log_of(output, task).open("wb") as log:
        return subprocess.Popen(
            ["/bin/bash", str(job / "script")],
            env=os.environ | own,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def log_of(output: str, task: int) -> Path:
    return Path(re.sub("%[%a]", lambda found: {"%%": "%", "%a": str(task)}[found[0]], output))


def end(process: subprocess.Popen[bytes], log: Path, *, cancelled: bool) -> None:
    why = "DUE to SIGNAL Terminated" if cancelled else "DUE TO TIME LIMIT"
    with log.open("ab") as out:
        out.write(f"slurmstepd: error: *** JOB 1 ON here CANCELLED AT 2026-11-23T10:00:00 {why} ***\n".encode())
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def scancel(arguments: list[str]) -> int:
    found, rest = getopt.getopt(arguments, "", ["clusters=", "name=", "quiet"])
    names = [value for option, value in found if option == "--name"]
    for job in STATE.glob("[0-9]*"):
        if job.name in rest or (job / "name").read_text() in names:
            (job / "cancelled").touch()
    return 0


def indices(array: str) -> list[int]:
    """`1-3,7`."""
    pairs = [part.partition("-")[::2] for part in array.split(",")]
    return [index for first, last in pairs for index in range(int(first), int(last or first) + 1)]


def text_of(name: str) -> str:
    return (STATE / name).read_text() if (STATE / name).exists() else ""


if __name__ == "__main__":
    program, *given = sys.argv[1:]
    if program == "controller":
        controller(Path(given[0]), given[1], given[2])
    else:
        sys.exit({"sbatch": sbatch, "scancel": scancel}[program](given))
