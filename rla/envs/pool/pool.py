"""The pool: at most `workers` environments live at once, at most `busy` of them compute at once.

An episode has its worker from its first reset to its end; a worker waits while its episode waits for a reply. So there
may be more workers than cores, and more episodes than workers: those wait for a place, and the holder of a place
never waits for another.

An environment is deterministic given its task. So the episode of a lost worker goes on in another one: its actions are
played again, and every answer must be the one that was given before. A step that loses two workers ends the episode.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from rla.envs.observation import EnvironmentFailure, Observation
from rla.envs.pool.fork_server import (
    HEAD,
    PoolMessage,
    Recipe,
    failure_in,
    length,
    packed,
    parsed_message,
    to_observation,
)
from rla.errors import UserError
from rla.store.records import Task

START_SECONDS = 300.0  # a cold disk and a busy machine included
END_SECONDS = 5.0
# One thread each: workers are the parallelism. One hash seed: an environment that walks a set answers alike in all.
FIXED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


class Lost(Exception):
    """A worker that died or did not answer in time; the message says which."""


@dataclass(slots=True, eq=False)
class Channel:
    """Messages over a socket, without a stream: that would read ahead, and belong to one event loop."""

    socket: socket.socket

    async def send(self, message: PoolMessage) -> None:
        """Raises OSError where the other end is gone."""
        await asyncio.get_running_loop().sock_sendall(self.socket, packed(message))

    async def receive(self) -> PoolMessage:
        """The next message. Raises EOFError or OSError where the other end is gone."""
        return parsed_message(await self._exactly(length(await self._exactly(HEAD))))

    async def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = await asyncio.get_running_loop().sock_recv(self.socket, count - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    @property
    def silent(self) -> bool:
        """Whether the other end is there and has said nothing."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False


def pair() -> tuple[Channel, socket.socket]:
    """The stage's end, and the one for another process."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return Channel(ours), theirs


@dataclass(slots=True, eq=False)
class Worker:
    """One worker process. Not `usable` by another episode: it owes an answer, or has given its last one."""

    pid: int
    channel: Channel
    usable: bool = True

    async def ask(self, message: PoolMessage, *, seconds: float) -> PoolMessage:
        """The answer. Raises Lost after `seconds`, or as soon as the process has died."""
        self.usable = False
        try:
            async with asyncio.timeout(seconds):
                await self.channel.send(message)
                answer = await self.channel.receive()
        except TimeoutError:
            raise Lost(f"did not answer within {seconds:g} s") from None
        except (EOFError, OSError):
            raise Lost("died") from None
        self.usable = "last" not in answer
        return answer

    def free(self) -> bool:
        """Have it close its environment; False where it is not to be used again."""
        try:
            silent = self.usable and self.channel.silent
            return silent and bool(self.channel.socket.send(packed({"close": True})))
        except OSError:
            return False

    def end(self) -> None:
        """Close its socket, at which it ends by itself; one that is not usable is killed."""
        if not self.usable:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.channel.socket.close()


@dataclass(slots=True, eq=False)
class Nursery:
    """The process that forks workers. Popen starts a fresh interpreter: nothing of this process goes with it."""

    process: subprocess.Popen[bytes]
    channel: Channel
    ready: bool = False

    @classmethod
    def start(cls, recipe: Recipe) -> Nursery:
        """Start it and let it import; `worker` waits until it is ready."""
        channel, theirs = pair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "rla.envs.pool.fork_server", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the stage's own is for its summary
                env=os.environ | FIXED,
                pass_fds=[theirs.fileno()],
            )
        message = {"sys_path": sys.path, "target": recipe.target, "argument": dict(recipe.argument)}
        with contextlib.suppress(BrokenPipeError):  # it died at once; whoever wants a worker hears of it
            channel.socket.send(packed(message))
        return cls(process, channel)

    async def worker(self) -> Worker:
        """A new worker. Raises Lost where the nursery has died, UserError where it refuses the environment."""
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._wait()
                channel, theirs = pair()
                with theirs:
                    socket.send_fds(self.channel.socket, [b"w"], [theirs.fileno()])
                hello = await channel.receive()
        except TimeoutError:
            raise Lost(f"did not start within {START_SECONDS:g} s") from None
        except (EOFError, OSError):
            raise Lost("the process that starts workers died") from None
        return Worker(pid=hello["pid"], channel=channel)

    async def _wait(self) -> None:
        if not self.ready:
            answer = await self.channel.receive()
            if "refused" in answer:
                raise UserError(answer["refused"])
            self.ready = True

    def end(self) -> None:
        """Close its socket, at which it ends as soon as its workers have; kill it where that takes too long, or where
        it still imports.
        """
        self.channel.socket.close()
        if not self.ready:
            self.process.kill()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


STARTS = 3  # nurseries tried for one worker
TIMES = {2: "twice"}

Place = TypeVar("Place")  # what an episode steps in: a worker process, or a seat on an actor


class StepPlaces(Protocol[Place]):
    """A pool as an episode sees it. A step that loses `tries` places ends the episode; `replaced` counts lost ones."""

    replaced: int

    @property
    def tries(self) -> int: ...

    async def take(self) -> Place: ...

    async def start(self) -> Place: ...

    def give(self, worker: Place | None) -> None: ...

    def drop(self, worker: Place) -> None: ...

    async def ask(self, worker: Place, message: PoolMessage) -> PoolMessage: ...


class PooledEnvironment(Generic[Place]):
    """`AwaitedEnvironment` over a pool. Raises EnvironmentFailure for what the environment answers badly or not at all,
    UserError where it cannot be made on this machine.
    """

    def __init__(self, pool: StepPlaces[Place], task: Task) -> None:
        self._pool, self._task = pool, task
        self.worker: Place | None = None
        self._placed = False
        self._history: list[tuple[PoolMessage, Observation]] = []

    async def reset(self) -> Observation:
        """The first observation; waits for a worker where all are taken."""
        if not self._placed:
            self.worker = await self._pool.take()
            self._placed = True
        self._history = []
        return await self._answer({"reset": self._task.row()})

    async def step(self, action: str) -> Observation:
        """The answer to an action."""
        return await self._answer({"step": action})

    def close(self) -> None:
        """Let the next episode have the worker, or end it where it still owes an answer."""
        if self._placed:
            self._placed = False
            self._pool.give(self.worker)
            self.worker = None

    async def _answer(self, message: PoolMessage) -> Observation:
        seen, lost = None, 0
        while seen is None:
            try:
                seen = await (self._again(message) if lost else self._ask(message))
            except Lost as error:
                lost += 1
                if lost == self._pool.tries:
                    times = TIMES.get(lost, f"{lost} times")
                    raise EnvironmentFailure(f"the environment {error} {times} at {asked_for(message)}") from None
        self._history.append((message, seen))
        return seen

    async def _again(self, message: PoolMessage) -> Observation:
        """Play the episode so far in a new worker (one that rests might hang, too), then ask once more."""
        self._lose()
        self.worker = await self._pool.start()
        for number, (earlier, seen) in enumerate(self._history):
            if await self._ask(earlier) != seen:
                raise EnvironmentFailure(f"played again, answer {number} of the environment is another one")
        return await self._ask(message)

    async def _ask(self, message: PoolMessage) -> Observation:
        if self.worker is None:
            raise EnvironmentFailure("the environment is closed, or was never reset")
        try:
            answer = await self._pool.ask(self.worker, message)
        except Lost:
            self._pool.replaced += 1
            raise
        if "refused" in answer:
            raise UserError(answer["refused"])
        if "failure" in answer:
            raise failure_in(answer)
        return to_observation(answer["observation"])

    def _lose(self) -> None:
        if self.worker is not None:
            self._pool.drop(self.worker)
            self.worker = None


def asked_for(message: PoolMessage) -> str:
    """A message in words."""
    return f"action {message['step']!r}" if "step" in message else "the end" if "stopped" in message else "the reset"


class EnvironmentPool:
    """A context manager: no process is left when it is left. One event loop may use it.

    `deadline_s`: seconds that a worker has for a reset or a step; its time in the queue for a core does not count.
    `replaced` counts workers that died or hung under an episode.
    """

    tries = 2  # whichever step has lost two workers would lose a third

    def __init__(self, recipe: Recipe, *, workers: int, busy: int, deadline_s: float) -> None:
        self.replaced = 0
        self._recipe, self._deadline = recipe, deadline_s
        self._places, self._busy = asyncio.Semaphore(workers), asyncio.Semaphore(busy)
        self._starting = asyncio.Lock()
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._nursery: Nursery | None = None

    def __enter__(self) -> EnvironmentPool:
        self._nursery = Nursery.start(self._recipe)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._workers:
            worker.end()
        if self._nursery is not None:
            self._nursery.end()

    def environment(self, task: Task) -> PooledEnvironment[Worker]:
        """An environment that takes its worker at its first reset."""
        return PooledEnvironment(self, task)

    async def prepared(self) -> None:
        """Start the first worker, which may say that the environment cannot be had. Raises UserError."""
        self.give(await self.take())

    async def take(self) -> Worker:
        """A worker and the place to have it; waits until there is one. Raises UserError where none can be started."""
        await self._places.acquire()
        try:
            return self._resting() or await self.start()
        except BaseException:
            self._places.release()
            raise

    def give(self, worker: Worker | None) -> None:
        """Hand the place back, and the worker with it where it still lives and owes nothing."""
        if worker is not None and worker.free():
            self._idle.append(worker)
        elif worker is not None:
            self.drop(worker)
        self._places.release()

    def drop(self, worker: Worker) -> None:
        """End a worker that is not to be used again."""
        self._workers.discard(worker)
        worker.end()

    def _resting(self) -> Worker | None:
        while self._idle:
            worker = self._idle.pop()
            if worker.channel.silent:
                return worker
            self.drop(worker)
        return None

    async def start(self) -> Worker:
        """A new worker for a place that the caller holds. Raises UserError where none can be started."""
        async with self._starting:  # the nursery starts one at a time
            return await self._started()

    async def _started(self) -> Worker:
        reason = ""
        for _ in range(STARTS):
            if self._nursery is None:
                self._nursery = Nursery.start(self._recipe)
            try:
                worker = await self._nursery.worker()
            except Lost as lost:
                reason = str(lost)
                self._nursery.end()
                self._nursery = None
                continue
            self._workers.add(worker)
            return worker
        raise UserError(
            f"no worker process for the environment could be started ({reason}); what it printed is above. "
            "pool.mode: never plays without them"
        )

    async def ask(self, worker: Worker, message: PoolMessage) -> PoolMessage:
        """A worker's answer, when a core is free for it. Raises Lost."""
        async with self._busy:
            return await worker.ask(message, seconds=self._deadline)
