"""A program of the user's in its own session: started, and ended with everything that it has started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rla_programs.execution import supervisor
from rla_programs.execution.records import Limits

CHUNK, TAIL = 1 << 16, 2000  # bytes that are read at a time, and kept of the output
PAUSE_S = 0.02  # between two chunks: a program that prints without end waits for its pipe
LAST_S = 10.0  # for the supervisor to end everything; after that, this process kills them
ROUNDS, ROUND_S = 50, 0.2  # kills of a program that starts processes while it is killed; the longest pause between two


def supervised(command: Sequence[str], limits: Limits | None) -> list[str]:
    """The command under a supervisor outside of a box. It is stopped if it has more processes and threads together than
    its limit; memory is that of each process.
    """
    return [sys.executable, "-I", "-S", supervisor.__file__, settings(limits), *command]


def settings(limits: Limits | None, **more: int | str) -> str:
    """The first argument of a supervisor."""
    tasks, memory, file = (limits.processes, limits.memory_mb, limits.file_mb) if limits else (0, 0, 0)
    return json.dumps({"tasks": tasks, "memory": memory << 20, "file": file << 20, **more})


class Session:
    """A running program. `mark`: a text in its environment, by which its processes are found if it has killed its
    supervisor. `ended` is done when its first process has ended. `whole`: its files are all there. Used by one event
    loop.
    """

    whole = True

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], mark: str, fds: Sequence[int] = ()) -> None:
        """`command` starts the supervisor. Raises OSError."""
        self._mark, self._loop, self._tail = mark.encode(), asyncio.get_running_loop(), b""
        self._out, theirs = os.pipe()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                env=dict(env),
                pass_fds=fds,
                start_new_session=True,
            )
        except OSError:
            os.close(self._out)
            raise
        finally:
            os.close(theirs)
        self.pid = self._process.pid
        self.ended: asyncio.Future[None] = self._loop.create_future()
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:  # too many open files
            self._process.kill()
            self._process.wait()
            os.close(self._out)
            raise
        self._loop.add_reader(self._pidfd, self._notice_end)
        os.set_blocking(self._out, False)
        self._listen()

    def status(self) -> int | None:
        """The exit status, -n for signal n; None while it runs."""
        return self._process.returncode

    @property
    def crowded(self) -> bool:
        """Whether it was stopped because it had too many processes and threads."""
        return self._process.returncode == -supervisor.CROWDED

    def output(self) -> str:
        """The end of what it has printed."""
        return self._tail.decode(errors="replace").strip()

    def _notice_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._take()
        self._process.wait()
        if not self.ended.done():
            self.ended.set_result(None)

    def _read(self) -> None:
        self._loop.remove_reader(self._out)
        if self._take():
            self._loop.call_later(PAUSE_S, self._listen)

    def _listen(self) -> None:
        if self._out >= 0:
            self._loop.add_reader(self._out, self._read)

    def _take(self) -> bool:
        """Read a chunk of the output; False at its end."""
        try:
            data = os.read(self._out, CHUNK) if self._out >= 0 else b""
        except BlockingIOError:
            return True
        self._tail = (self._tail + data)[-TAIL:]
        return data != b""

    def kill(self) -> None:
        """Have its supervisor kill it and everything that it has started."""
        if self._process.poll() is None:  # not reaped, so the group's number is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGTERM)

    async def end(self) -> None:
        """Kill it and everything that it has started, and wait until nothing is left."""
        self.kill()
        await asyncio.wait([self.ended], timeout=LAST_S)
        await asyncio.to_thread(self.sweep)
        await self.ended
        if self._out >= 0:
            self._loop.remove_reader(self._out)
            os.close(self._out)
            self._out = -1

    def members(self) -> Iterator[int]:
        """The live processes that it has started, those of its session, and others that still have its environment."""
        # Its number may be another process's once it is reaped.
        own = self.pid if self._process.returncode is None else -1
        started = set(supervisor.descendants(own)[0]) if own > 0 else ()
        for pid, session in live_processes():
            if pid in started or session == own or self._mark in _environment(pid):
                yield pid

    def sweep(self) -> None:
        """Kill the members until there are none, and at last the supervisor, whose children they are until then. A
        zombie is not one: it has no environment and waits to be reaped.
        """
        for number in range(ROUNDS):
            found = list(self.members())
            for pid in (set(found) - {self.pid}) or found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not found:
                return
            time.sleep(min(0.01 * number, ROUND_S))  # a process that frees much memory takes a while to end
        if self._process.returncode is None:  # or `end` would wait for it forever, if the program has stopped it
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def live_processes() -> Iterator[tuple[int, int]]:
    """(id, session) of every live process."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                _, _, fields = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")
                state, _, _, session, *_ = fields.split()
                if state not in "ZX":
                    yield int(name), int(session)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
