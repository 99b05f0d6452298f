"""A program of the user's in its own session: started, watched, and ended with everything that it has started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

CHUNK, TAIL = 1 << 16, 2000  # bytes that are read at a time, and kept of the output
PAUSE_S = 0.02  # between two chunks: a program that prints without end waits for its pipe
WATCH_S = 0.1  # between two counts of processes
ROUNDS = 50  # kills of a program that starts processes while it is killed


class Session:
    """A running program. `mark`: a text in its environment, by which processes that leave its session are found.

    `ended` is done when its first process has ended. Used by one event loop.
    """

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], mark: str, fds: Sequence[int] = ()) -> None:
        """Raises OSError."""
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
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pidfd, self._notice_end)
        os.set_blocking(self._out, False)
        self._listen()

    def status(self) -> int | None:
        """The exit status, -n for signal n; None while it runs."""
        return self._process.returncode

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
        """Kill its process group at once."""
        if self._process.returncode is None:  # not reaped, so the group's number is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it and everything that it has started, and wait until nothing is left."""
        self.kill()
        await self.ended
        await asyncio.to_thread(self.sweep)
        if self._out >= 0:
            self._loop.remove_reader(self._out)
            os.close(self._out)
            self._out = -1

    def members(self) -> Iterator[int]:
        """The processes of its session, and others that still have its environment."""
        for pid, session in live_processes():
            if session == self.pid or self._mark in _environment(pid):
                yield pid

    def sweep(self) -> None:
        """Kill the members until there are none. A zombie is not one: it has no environment and waits to be reaped."""
        for _ in range(ROUNDS):
            if not (found := list(self.members())):
                return
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


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


class SessionWatch:
    """A thread that ends programs with more than `most` processes, because the event loop may be slow to."""

    def __init__(self, most: int) -> None:
        self._most, self._programs, self._over = most, dict[int, Session](), threading.Event()
        self.crowded = set[int]()  # the programs that were ended
        self._thread = threading.Thread(target=self._run, name="sessions", daemon=True)
        self._thread.start()

    def add(self, program: Session) -> None:
        self._programs[program.pid] = program

    def forget(self, program: Session) -> None:
        self._programs.pop(program.pid, None)

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(WATCH_S):
            counts = dict.fromkeys(self._programs, 0)
            for _, session in live_processes() if counts else ():
                if session in counts:
                    counts[session] += 1
            for pid, count in counts.items():
                if count > self._most and (program := self._programs.get(pid)):
                    self.crowded.add(pid)
                    program.kill()
                    program.sweep()
