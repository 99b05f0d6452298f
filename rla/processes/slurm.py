"""`launch.stage: slurm`: the slices of a stage as one job array, which this process waits for (`sbatch --wait`).

| file of `folder` | what it holds |
|---|---|
| `array.sh` | what every task of the array runs: the stage with `--slice <task>/<slices>` |
| `<i>.log` | what slice i said |
| `<i>.status` | the exit status of slice i, written when it ends |

A task that Slurm ends writes no status, and `sbatch --wait` may then end with 0: accounting has no exit code of a job
that was cancelled before it began. So the files say which slices failed, and the last lines of a log say why. `folder`,
the working directory and the interpreter lie on a file system that all machines share.

The array is cancelled when this process ends before it, however it ends (`cancelling`). One that a lost machine has
left behind is cancelled before the next is submitted: both have the same name, which follows from the output's folder.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rla.errors import UserError
from rla.processes.executors import MEND, SliceFailure
from rla.processes.workers import WATCH, exit_text, listen
from rla.store.slices import Slice

# A task that Slurm ends gets SIGTERM, as bash does: with a trap bash waits for the stage, which puts down its work.
SCRIPT = """\
#!/bin/bash
trap : TERM
cd -- {cwd} || exit 1
unset {unset}
{exports}{command} --slice "$SLURM_ARRAY_TASK_ID/{count}"
status=$?
own={folder}/"$SLURM_ARRAY_TASK_ID"
printf '%s\\n' "$status" > "$own.tmp" && mv -f -- "$own.tmp" "$own.status"
exit "$status"
"""
GUARD = 'read -r job || exec "$@" --name="$0"; read -r word || exec "$@" "$job"'
INPUTS = ("SLURM_CONF", "SLURM_CLUSTERS")  # of sbatch; other SLURM_ variables are those of a job that this one runs in
LATE = 30.0  # seconds until a file that another machine wrote is seen here
GIVE_UP = 60.0  # seconds for scancel
TAIL = 8192  # bytes of a log that are read
ENDED_BY = re.compile(r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+))?", re.IGNORECASE)
MORE_TIME = "give slices more time (launch.sbatch: --time=...) or less work each (launch.slices)"
CAUSES = {
    "TIME LIMIT": ("its time limit ended it", MORE_TIME),
    "PREEMPTION": ("preempted", "wait for the cluster"),
    "NODE FAILURE": ("its machine failed", "wait for the cluster"),
}
CANCELLED = ("cancelled", "see who cancelled it")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmArray:
    """The executor. `options`: further ones of sbatch. `more`: variables of the slices' environment."""

    folder: Path
    name: str
    options: Sequence[str] = ()
    more: Mapping[str, str] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda text: None

    def run(self, arguments: Sequence[str], slices: Sequence[Slice]) -> list[SliceFailure]:
        """Raises UserError where there is no Slurm, where it refuses the job, and where sbatch is killed."""
        sbatch, cancel = slurm_program("sbatch"), self.cancelling_command()
        script = self.folder / "array.sh"
        script.write_text(self.script(arguments, count=slices[0].count))
        with suppress(subprocess.TimeoutExpired):  # then sbatch has no answer either, and says so
            left_behind = [*cancel, f"--name={self.name}"]
            subprocess.run(left_behind, env=outside_of_jobs(), capture_output=True, timeout=GIVE_UP, check=False)
        with cancelling(cancel, self.name) as submitted:
            self.wait([sbatch, *self.sbatch_options(slices), str(script)], slices, submitted)
        return self.failures(slices)

    def script(self, arguments: Sequence[str], *, count: int) -> str:
        exports = "".join(f"export {shlex.quote(f'{name}={value}')}\n" for name, value in self.more.items())
        return SCRIPT.format(
            cwd=shlex.quote(os.getcwd()),
            unset=WATCH,
            exports=exports,
            command=shlex.join([sys.executable, "-m", "rla", *arguments]),
            count=count,
            folder=shlex.quote(str(self.folder.absolute())),
        )

    def sbatch_options(self, slices: Sequence[Slice]) -> list[str]:
        """Of several that say the same thing sbatch takes the last."""
        usual = ["--nodes=1", "--ntasks=1", "--requeue"]
        own = ["--parsable", "--wait", f"--job-name={self.name}", f"--array={array_indices(slices)}"]
        logs = self.folder.absolute()
        return [*usual, *self.options, *own, f"--chdir={os.getcwd()}", f"--output={in_pattern(logs)}/%a.log"]

    def cancelling_command(self) -> list[str]:
        clusters = [option for option in self.options if option.startswith(("--clusters=", "--cluster="))]
        return [slurm_program("scancel"), *clusters, "--quiet"]

    def wait(self, command: Sequence[str], slices: Sequence[Slice], submitted: Callable[[str], None]) -> None:
        """Submit, and wait until no task is left. `submitted` is told the job. Raises UserError."""
        heard: deque[str] = deque(maxlen=5)
        process = subprocess.Popen(
            command,
            env=outside_of_jobs(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is this process's: it cancels the array
        )
        listener = listen(process, "", heard=heard)
        assert process.stdout is not None
        job = process.stdout.readline().decode(errors="replace").strip().partition(";")[0]
        if job:
            submitted(job)
            self.tell(f"job {job}: slices {array_indices(slices)} of {slices[0].count}; logs: {self.folder}/")
        code = process.wait()
        listener.join()
        process.stdout.close()
        if code < 0:
            raise UserError(f"sbatch ended by {exit_text(code)}, and the array is cancelled; call the same command")
        if not job:
            said = " ".join(line.strip() for line in heard) or exit_text(code)
            raise UserError(f"sbatch refused the job: {said}; mend launch.sbatch or launch.slices, see `man sbatch`")

    def failures(self, slices: Sequence[Slice]) -> list[SliceFailure]:
        """By the files that the tasks have left."""
        end = time.monotonic() + LATE
        while (found := self.statuses()).keys() < {part.index for part in slices} and time.monotonic() < end:
            if self.told_why(slices, found):
                break
            time.sleep(0.5)
        return [self.failure(part, found.get(part.index)) for part in slices if found.get(part.index) != 0]

    def statuses(self) -> dict[int, int]:
        """Slice -> its exit status. The folder is listed: what it lists is not remembered from before, as names are."""
        found = {}
        for path in self.folder.iterdir():
            if path.suffix == ".status":
                with suppress(ValueError, OSError):
                    found[int(path.stem)] = int(path.read_text())
        return found

    def told_why(self, slices: Sequence[Slice], found: Mapping[int, int]) -> bool:
        """Whether the log of each slice without a status says why it has none."""
        return all(ENDED_BY.search(self.tail(part)) for part in slices if part.index not in found)

    def failure(self, part: Slice, status: int | None) -> SliceFailure:
        tail, log = self.tail(part), self.log(part)
        ended = ENDED_BY.search(tail) if status is None or status > 128 else None
        if ended is not None:
            reason, remedy = CAUSES.get((ended[1] or "").strip().upper(), CANCELLED)
        elif status is None:
            reason = "cancelled before it began, or lost" if not tail else "ended without a status"
            remedy = CANCELLED[1]
        else:
            errors = [line for line in tail.splitlines() if line.startswith("error: ")]
            reason, remedy = ": ".join([f"exit status {status}", *errors[-1:]]), MEND
        return SliceFailure(part=part, reason=reason, log=log if log.is_file() else self.folder, remedy=remedy)

    def log(self, part: Slice) -> Path:
        return self.folder / f"{part.index}.log"

    def tail(self, part: Slice) -> str:
        """The end of a slice's log; empty where it has none."""
        with suppress(OSError), self.log(part).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read().decode(errors="replace")
        return ""


@contextmanager
def cancelling(command: Sequence[str], name: str) -> Iterator[Callable[[str], None]]:
    """Run `command` for the job unless the block ends well: also where this process is killed in it.

    A shell in a session of its own reads from a pipe of this process. Whatever ends this process closes the pipe. The
    block calls what it gets with the number of the job; until then the job is named by `name`.
    """
    quiet = subprocess.DEVNULL
    guard = subprocess.Popen(
        ["/bin/sh", "-c", GUARD, name, *command],
        env=outside_of_jobs(),
        stdin=subprocess.PIPE,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    pipe = guard.stdin
    assert pipe is not None

    def say(word: str) -> None:
        with suppress(BrokenPipeError):
            pipe.write(f"{word}\n".encode())
            pipe.flush()

    try:
        yield say
        say("done")
    finally:
        with suppress(BrokenPipeError):
            pipe.close()
        with suppress(subprocess.TimeoutExpired):
            guard.wait(GIVE_UP)


def slurm_program(name: str) -> str:
    """Where the program lies. Raises UserError."""
    found = shutil.which(name)
    if found is None:
        raise UserError(
            f"{name}: no such program here, and launch.stage: slurm needs it; call this on a machine that submits "
            "jobs, or with --set launch.stage=local"
        )
    return found


def outside_of_jobs() -> dict[str, str]:
    """This environment without what tells of the job that this process may run in: its GPUs are not those of the array,
    nor are its limits.
    """
    left = (WATCH, "CUDA_VISIBLE_DEVICES")
    return {
        key: value
        for key, value in os.environ.items()
        if key not in left and (key in INPUTS or not key.startswith("SLURM_"))
    }


def array_indices(slices: Sequence[Slice]) -> str:
    """`1-3,7`: the numbers of slices as sbatch reads them."""
    runs: list[list[int]] = []
    for index in sorted(part.index for part in slices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def in_pattern(path: Path) -> str:
    """A path for --output, where % begins a pattern."""
    return str(path).replace("%", "%%")
