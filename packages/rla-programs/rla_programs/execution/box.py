"""The service's end of a box: start it, give it one run after another, end it. Blocking: each box has its thread.

The pipes of a run belong to the service; the controller in the box gets the program's ends as descriptors. The outcome
of a run comes over the controller's socket, never through the pipes.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rla_programs.execution import controller
from rla_programs.execution.records import Limits

READY_S = 60.0  # enough for a cold disk and a busy machine
GRACE_S = 10.0  # beyond the wall clock limit that the controller enforces
CHUNK = 1 << 16
STDERR_KEPT = 4096


class BoxError(Exception):
    """The box did not start, or died during a run; the message says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one run. `status` is a wait status; `how` says who ended it (ENDED: the program itself)."""

    how: bytes
    status: int
    wall_s: float
    cpu_s: float
    stdout: bytes
    stderr: bytes
    value: bytes
    overflow: bool
    starved: bool = False  # its cgroup ran out of memory


@dataclass(slots=True)
class Sink:
    """The data of one pipe: its beginning (or its end, of `last` bytes) and the total size."""

    keep: int
    last: bool = False
    data: bytearray = field(default_factory=bytearray)
    size: int = 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        self.data += part if self.last else part[: max(0, self.keep - len(self.data))]
        if self.last:
            del self.data[: -self.keep]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command that starts a controller, and a function to call when it has ended. `owner` will own the pipes, 0:
    unchanged. `files` are for the command alone and are closed here. `starved`: whether the kernel has killed one of
    its processes for lack of memory since the last call.
    """

    command: list[str]
    files: tuple[int, ...] = ()
    owner: int = 0
    cleanup: Callable[[], None] = lambda: None
    starved: Callable[[], bool] = lambda: False


class ProgramBox:
    """One controller process and the namespaces around it, for the runs of one program."""

    def __init__(self, launch: Callable[[int], Launch], *, limits: Limits, start: bytes) -> None:
        """`launch` gets the number of the controller's descriptor. Raises BoxError if it does not start."""
        self._limits = limits
        self.spent = False  # a run touched its folder, so no other run may use the box
        self._ending = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._launch = launch(theirs.fileno())
                self._process = self._started(theirs.fileno())
        except OSError as error:
            self._control.close()
            raise BoxError(str(error)) from None
        self._await_ready(start)

    def _started(self, control: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._launch.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={"PYTHONHASHSEED": "0", "PYTHONCOERCECLOCALE": "0"},
                pass_fds=(control, *self._launch.files),
                start_new_session=True,
            )
        except OSError:
            self._launch.cleanup()
            raise
        finally:
            for fd in self._launch.files:
                os.close(fd)

    def _await_ready(self, start: bytes) -> None:
        self._control.settimeout(READY_S)
        try:
            self._control.send(start)
            answer = self._control.recv(controller.HEAD)
        except OSError:
            answer = b""
        if answer != controller.READY:
            assert self._process.stderr is not None
            self.kill()
            said = self._process.stderr.read(CHUNK).decode(errors="replace").strip()
            self.close()
            raise BoxError(said.splitlines()[-1] if said else f"it said nothing within {READY_S:g} s")

    def run(self, kind: bytes, question: bytes, wall_s: float) -> Outcome:
        """One run, halted after `wall_s` seconds if that is less than its limit. Raises BoxError if the box dies."""
        run = Run(self._control, self._launch.owner, self._limits, kind=kind, question=question)
        return replace(run.outcome(self, wall_s), starved=self.starved())

    def starved(self) -> bool:
        """See `Launch`."""
        return self._launch.starved()

    def kill(self) -> None:
        """Kill every process of the box: pid 1 dies with the process killed here, and the others with pid 1. May be
        called from another thread; a run in progress raises BoxError.
        """
        with self._ending:
            if self._process.returncode is None:  # not reaped, so the group's number is still its own
                with contextlib.suppress(OSError):
                    self._control.shutdown(socket.SHUT_RDWR)  # ends the controller, and a run that waits for it
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the box and remove everything."""
        self.kill()
        with self._ending:
            self._process.wait()
        self._control.close()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._launch.cleanup()


class Run:
    """The pipes of one run that are still open."""

    def __init__(self, control: socket.socket, owner: int, limits: Limits, *, kind: bytes, question: bytes) -> None:
        self._control, self._limits = control, limits
        self._question = memoryview(question)
        most = limits.output_kb << 10
        self._stdout, self._stderr, self._value = Sink(most), Sink(STDERR_KEPT, last=True), Sink(most)
        self._poll = select.poll()
        self._sinks: dict[int, Sink] = {}
        self._feed: int | None = None
        self._report = b""
        self._halted = False
        self._begin(kind, owner)

    def _begin(self, kind: bytes, owner: int) -> None:
        source, self._feed = os.pipe()
        given = [source]
        try:
            for sink in (self._stdout, self._stderr, *([self._value] if kind == controller.CALL else [])):
                ours, theirs = os.pipe()
                given.append(theirs)
                self._sinks[ours] = sink
            for fd in given if owner else ():
                os.fchown(fd, owner, owner)  # so that /dev/stdin can be opened
            with contextlib.suppress(OSError):  # a dead box is noticed below, as the end of its socket
                socket.send_fds(self._control, [kind], given)
        finally:
            for fd in given:
                os.close(fd)
        for fd in (*self._sinks, self._control.fileno()):
            self._poll.register(fd, select.POLLIN)
        os.set_blocking(self._feed, False)
        self._poll.register(self._feed, select.POLLOUT)
        self._write()

    def outcome(self, box: ProgramBox, wall_s: float) -> Outcome:
        started = time.monotonic()
        until = started + self._limits.wall_s + GRACE_S
        stop = started + wall_s if wall_s < self._limits.wall_s else until
        try:
            while self._sinks or not self._report:
                now = time.monotonic()
                if now >= until:
                    raise BoxError("nothing was heard of it long after its deadline")
                if now >= stop:
                    self._halt()
                for fd, _ in self._poll.poll(1 + ((until if now >= stop else stop) - now) * 1000):
                    self._handle(fd)
        finally:
            for fd in (*self._sinks, *(() if self._feed is None else (self._feed,))):
                os.close(fd)
        how, status, wall_s, cpu_s, dirty = controller.REPORT.unpack(self._report)
        box.spent = box.spent or dirty
        return Outcome(
            how=how,
            status=status,
            wall_s=wall_s,
            cpu_s=cpu_s,
            stdout=bytes(self._stdout.data),
            stderr=bytes(self._stderr.data),
            value=bytes(self._value.data),
            overflow=self._overflows(),
        )

    def _handle(self, fd: int) -> None:
        if fd == self._feed:
            self._write()
        elif fd in self._sinks:
            self._read(fd)
        elif fd == self._control.fileno():
            self._report = self._control.recv(controller.HEAD)
            if not self._report:
                raise BoxError("its first process died")
            self._poll.unregister(fd)
            self._hang_up()

    def _write(self) -> None:
        assert self._feed is not None
        try:
            while self._question:
                self._question = self._question[os.write(self._feed, self._question) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass
        self._hang_up()

    def _hang_up(self) -> None:
        """Close the program's stdin, even if the program has ended without reading it."""
        if self._feed is not None:
            self._poll.unregister(self._feed)
            os.close(self._feed)
            self._feed = None

    def _read(self, fd: int) -> None:
        part = os.read(fd, CHUNK)
        if part:
            self._sinks[fd].add(part)
        else:
            self._poll.unregister(fd)
            del self._sinks[fd]
            os.close(fd)
        if self._overflows():
            self._halt()

    def _halt(self) -> None:
        if not self._halted and not self._report:
            self._halted = True
            with contextlib.suppress(OSError):
                self._control.send(controller.HALT)

    def _overflows(self) -> bool:
        most = self._limits.output_kb << 10
        return self._stdout.size + self._stderr.size > most or self._value.size > most
