"""One call of `rla` in a forked child, and what a user may expect of its end: success, or one error in one line."""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rla.processes import end_at_once, end_with_parent
from tests.attack.areas import HANGS
from tests.attack.preparing import Mode, armed

SECONDS = 120.0  # a call that takes longer hangs
TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An operation on files, by its number within a call, and what happens there."""

    number: int = 0
    mode: Mode = Mode.KILL


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a call ended; `code` is -n where signal n ended it. `said`: both streams."""

    code: int
    said: str
    seconds: float

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


@dataclass(slots=True, kw_only=True)
class Running:
    """A call that runs; `wait` ends it."""

    pid: int
    said: Path
    started: float

    def wait(self, seconds: float = SECONDS) -> Ended:
        handle = os.pidfd_open(self.pid)
        try:
            late = not select.select([handle], [], [], max(0.0, self.started + seconds - time.monotonic()))[0]
        finally:
            os.close(handle)
        if late:
            os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        _end_group(self.pid)  # before it is reaped: its number is nobody else's until then
        _, status = os.waitpid(self.pid, 0)
        said = self.said.read_text(errors="replace")
        code = 124 if late else os.waitstatus_to_exitcode(status)
        return Ended(code=code, said=said, seconds=time.monotonic() - self.started)


def begin(arguments: Sequence[str], folder: Path, *, point: Point | None = None, log: int = -1) -> Running:
    """Start `rla <arguments>` in `folder`, below which its operations on files are numbered."""
    said = folder.parent / f"said-{time.monotonic_ns()}"
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(arguments, folder, said, point or Point(), log)
    return Running(pid=pid, said=said, started=started)


def call(arguments: Sequence[str], folder: Path, *, point: Point | None = None, log: int = -1) -> Ended:
    """`begin`, to the end."""
    return begin(arguments, folder, point=point, log=log).wait()


def fault(ended: Ended) -> str | None:
    """What is wrong with an end that is neither success nor one error in one line; None where nothing is."""
    lines = [line for line in ended.said.splitlines() if line.strip()]
    if TRACEBACK in ended.said:
        return f"traceback: {lines[-1][:160]}"
    if ended.code == 124:
        return f"{HANGS}more than {SECONDS:.0f} s"
    if ended.code == 0:
        return None
    if ended.code != 2:
        return f"exit code {ended.code}: {(lines or ['it said nothing'])[-1][:160]}"
    errors = [line for line in lines if line.startswith("error: ")]
    if len(errors) != 1 or lines[-1] != errors[0]:
        what = f"an error of several lines at exit code {ended.code}" if errors else "exit code 2 without an error"
        return f"{what}; the last is {(lines or [''])[-1][:160]!r}"
    return None


def _child(arguments: Sequence[str], folder: Path, said: Path, point: Point, log: int) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        end_with_parent()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        output = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in enumerate((nothing, output, output)):
            os.dup2(source, target)
        os.chdir(folder)
        armed(folder, target=point.number, mode=point.mode, log=log)
        from rla.cli.app import run

        status = run(list(arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        armed(Path("/nowhere"))
        end_at_once(status)


def _end_group(pid: int) -> None:
    """End what a call that was killed has left running."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
