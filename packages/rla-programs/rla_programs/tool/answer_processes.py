"""Processes that compare answers, a few at a time. If an answer makes a process hang or die, the process is replaced
and the answer counts as wrong. If a process dies while idle, it is replaced too, and its successor gets the next
answer.

The limit is on processor time, so that a verdict does not depend on the machine's load; `wall_s` is for a process that
waits. A process is retired after MOST_ANSWERS, because SymPy caches what it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Timer
from typing import Any

from rla.envs.observation import EnvironmentFailure
from rla_programs.tool.answer_worker import READY

MOST_ANSWERS = 500
START_S = 120.0
START = "from rla_programs.tool.answer_worker import serve_answers; serve_answers()"


class DiedUnasked(EnvironmentFailure):
    """A process had died before it could read its request, so this says nothing about the answer."""


@dataclass(slots=True)
class _Comparer:
    """A process and the number of answers it has compared."""

    process: subprocess.Popen[bytes]
    answers: int = 0


class AnswerProcesses:
    """At most `workers` processes for requests of one kind (`answer_worker`)."""

    def __init__(self, kind: str, *, workers: int, cpu_s: float, wall_s: float) -> None:
        self._kind, self._cpu_s, self._wall_s = kind, cpu_s, wall_s
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="answers")  # each waits for one process
        self._idle: list[_Comparer] = []

    async def compared(self, request: Mapping[str, Any]) -> Any:
        """The reply to a request; None if the process died of it. Raises EnvironmentFailure if a process does not
        start, or if a new one dies before its first request.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._compared, request)

    async def close(self) -> None:
        """End the processes after the replies to requests in progress."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        while self._idle:
            _end_comparer(self._idle.pop().process)

    def _compared(self, request: Mapping[str, Any]) -> Any:
        try:  # another thread may take the last one after a check, so try
            comparer = self._idle.pop()
        except IndexError:
            return self._asked(self._started(), request)
        try:
            return self._asked(comparer, request)
        except DiedUnasked:
            return self._asked(self._started(), request)

    def _asked(self, comparer: _Comparer, request: Mapping[str, Any]) -> Any:
        reply = None
        try:
            reply = _comparison_reply(comparer.process, request, self._wall_s)
            comparer.answers += 1
        finally:
            if reply is None or comparer.answers >= MOST_ANSWERS:
                _end_comparer(comparer.process)
            else:
                self._idle.append(comparer)
        return reply

    def _started(self) -> _Comparer:
        command = [sys.executable, "-P", "-c", START, self._kind, str(self._cpu_s)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with killed_after(process, START_S):
            said = _line(process)
        if said != READY:
            _end_comparer(process)
            raise EnvironmentFailure(f"the process that compares answers ({self._kind}) did not start")
        return _Comparer(process)


def _comparison_reply(process: subprocess.Popen[bytes], request: Mapping[str, Any], seconds: float) -> Any:
    """The process's reply; None if it died of the request, or was killed after `seconds`. Raises DiedUnasked."""
    assert process.stdin is not None
    with killed_after(process, seconds):
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise DiedUnasked("a process that compares answers died before it was asked") from None
        return _line(process)


@contextlib.contextmanager
def killed_after(process: subprocess.Popen[bytes], seconds: float) -> Iterator[None]:
    timer = Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _line(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def _end_comparer(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(BrokenPipeError):
        process.communicate()
