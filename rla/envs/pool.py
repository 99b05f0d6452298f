"""Where the environments of a stage step: in its own process, in a pool of worker processes (`pool.mode`), in a service
of the environment (`Shares`), or wherever a cluster backend places them (`pool.backend`).

Of a pool at most `workers` environments are alive, and at most `busy` of them compute. An episode has a worker process
of its own from its first reset to its end, even while it waits for a reply. So there may be more workers than cores,
and more episodes than workers: those wait for a place, and the holder of a place never waits for another one.

An environment is deterministic given its task. If an episode loses its worker, its actions are replayed in a new one,
and every answer must equal the earlier one. A step that loses two workers ends its episode.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from rla.config import Config, resolved
from rla.envs.fork_server import HEAD, PoolMessage, packed, to_observation
from rla.envs.observation import (
    AwaitedEnvironment,
    Environment,
    EnvironmentFailure,
    MalformedObservation,
    Observation,
)
from rla.envs.protocols import Measured, Pooled, Shares, Spreads
from rla.envs.registry import environment, from_mapping
from rla.errors import UserError
from rla.processes import usable_cores
from rla.store.records import Task

START_SECONDS = 300.0  # enough for a cold disk and a busy machine
END_SECONDS = 5.0
STARTS = 3  # fork servers tried for one worker
# One thread each: workers are the parallelism. One hash seed: an environment that iterates over a set answers the same
# in all of them.
FIXED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
PER_CORE = 8  # live environments: most wait for a reply. A TextWorld worker takes about 100 MB
BUSY_PER_CORE = 2  # computing environments: one that hangs does not block a whole core

MakeEnv = Callable[[Task], Environment | AwaitedEnvironment]


class Lost(Exception):
    """A worker died or did not answer in time; the message says which."""


@dataclass(slots=True, eq=False)
class _Channel:
    """Messages over a socket. asyncio streams are not used: they read ahead, and they belong to one event loop."""

    sock: socket.socket

    @classmethod
    def pair(cls) -> tuple[_Channel, socket.socket]:
        """The stage's end, and the one for another process."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        return cls(ours), theirs

    async def send(self, message: PoolMessage) -> None:
        """Raises OSError if the other end is gone."""
        await asyncio.get_running_loop().sock_sendall(self.sock, packed(message))

    async def receive(self) -> PoolMessage:
        """The next message. Raises EOFError or OSError if the other end is gone."""
        size = int.from_bytes(await self._exactly(HEAD), "big")
        message: PoolMessage = json.loads(await self._exactly(size))
        return message

    async def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = await asyncio.get_running_loop().sock_recv(self.sock, count - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


@dataclass(slots=True, eq=False)
class Worker:
    """A worker process, which plays one episode. `busy`: it owes an answer."""

    pid: int
    channel: _Channel
    busy: bool = False

    async def ask(self, message: PoolMessage, *, seconds: float) -> PoolMessage:
        """The answer. Raises Lost after `seconds`, or as soon as the process dies."""
        self.busy = True
        try:
            async with asyncio.timeout(seconds):
                await self.channel.send(message)
                answer = await self.channel.receive()
        except TimeoutError:
            raise Lost(f"did not answer within {seconds:g} s") from None
        except (EOFError, OSError):
            raise Lost("died") from None
        self.busy = False
        return answer

    def end(self) -> None:
        """Close its socket, whereupon it closes its environment and ends; kill it if it is still computing."""
        if self.busy:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.channel.sock.close()


@dataclass(slots=True, eq=False)
class _ForkServer:
    """The process that forks workers. Popen starts a fresh interpreter that inherits nothing of this process."""

    process: subprocess.Popen[bytes]
    channel: _Channel
    ready: bool = False

    @classmethod
    def start(cls, target: str, argument: Mapping[str, Any]) -> _ForkServer:
        """Start it and let it import; `worker` waits until it is ready."""
        channel, theirs = _Channel.pair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "rla.envs.fork_server", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the stage prints its summary to its own
                env=os.environ | FIXED,
                pass_fds=[theirs.fileno()],
            )
        message = {"sys_path": sys.path, "target": target, "argument": dict(argument)}
        with contextlib.suppress(BrokenPipeError):  # it died at once; `worker` reports that
            channel.sock.send(packed(message))
        return cls(process, channel)

    async def worker(self) -> Worker:
        """A new worker. Raises Lost if the server has died, UserError if it refuses the environment."""
        try:
            async with asyncio.timeout(START_SECONDS):
                if not self.ready:
                    answer = await self.channel.receive()
                    if "refused" in answer:
                        raise UserError(answer["refused"])
                    self.ready = True
                channel, theirs = _Channel.pair()
                with theirs:
                    socket.send_fds(self.channel.sock, [b"w"], [theirs.fileno()])
                hello = await channel.receive()
        except TimeoutError:
            raise Lost(f"did not start within {START_SECONDS:g} s") from None
        except (EOFError, OSError):
            raise Lost("the process that starts workers died") from None
        return Worker(pid=hello["pid"], channel=channel)

    def end(self) -> None:
        """Close its socket, whereupon it ends after its workers; kill it if it still imports or takes too long."""
        self.channel.sock.close()
        if not self.ready:
            self.process.kill()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


Place = TypeVar("Place")  # runs an episode: a worker process, or a slot of an actor


class _StepPlaces(Protocol[Place]):
    """A pool as an episode uses it. A step that loses `tries` places ends the episode; `replaced` counts lost ones."""

    replaced: int

    @property
    def tries(self) -> int: ...
    async def take(self) -> Place: ...
    async def start(self) -> Place: ...
    def give(self, worker: Place | None) -> None: ...
    def drop(self, worker: Place) -> None: ...
    async def ask(self, worker: Place, message: PoolMessage) -> PoolMessage: ...


class PooledEnvironment(Generic[Place]):
    """An `AwaitedEnvironment` in a pool. Raises EnvironmentFailure if the environment fails or does not answer,
    UserError if it cannot be created on this machine.
    """

    def __init__(self, pool: _StepPlaces[Place], task: Task) -> None:
        self._pool, self._task = pool, task
        self.worker: Place | None = None
        self._placed = False
        self._history: list[tuple[PoolMessage, Observation]] = []

    async def reset(self) -> Observation:
        """The first observation; waits for a place."""
        if not self._placed:
            self.worker = await self._pool.take()
            self._placed = True
        self._history = []
        return await self._answer({"reset": self._task.row()})

    async def step(self, action: str) -> Observation:
        return await self._answer({"step": action})

    def close(self) -> None:
        """End the worker, and leave the place to the next episode."""
        if self._placed:
            self._placed = False
            self._pool.give(self.worker)
            self.worker = None

    async def _answer(self, message: PoolMessage) -> Observation:
        seen, lost = None, 0
        while seen is None:
            try:
                seen = await (self._replay(message) if lost else self._ask(message))
            except Lost as error:
                lost += 1
                if lost == self._pool.tries:
                    step = f"action {message['step']!r}" if "step" in message else "the end"
                    at = "the reset" if "reset" in message else step
                    times = "twice" if lost == 2 else f"{lost} times"
                    raise EnvironmentFailure(f"the environment {error} {times} at {at}") from None
        self._history.append((message, seen))
        return seen

    async def _replay(self, message: PoolMessage) -> Observation:
        """Replay the episode in a new worker, then ask once more."""
        if self.worker is not None:
            self._pool.drop(self.worker)
            self.worker = None
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
            raise (MalformedObservation if answer.get("malformed") else EnvironmentFailure)(answer["failure"])
        return to_observation(answer["observation"])


class EnvironmentPool:
    """A context manager that leaves no process behind. Used by one event loop.

    `argument`: the whole config as JSON. `deadline_s`: seconds that a worker has for a reset or a step, without its
    time in the queue for a core. `target`: the `module:function` that is called once with `argument`, in the process
    that forks the workers, and returns the function that creates environments. `replaced` counts workers that died or
    hung during an episode.
    """

    tries = 2  # a step that has lost two workers would lose a third

    def __init__(
        self,
        argument: Mapping[str, Any],
        *,
        workers: int,
        busy: int,
        deadline_s: float,
        target: str = "rla.envs.pool:maker",
    ) -> None:
        self.replaced = 0
        self._start = lambda: _ForkServer.start(target, argument)
        self._deadline = deadline_s
        self._places, self._busy = asyncio.Semaphore(workers), asyncio.Semaphore(busy)
        self._starting = asyncio.Lock()
        self._workers: set[Worker] = set()
        self._server: _ForkServer | None = None

    def __enter__(self) -> EnvironmentPool:
        self._server = self._start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()
        if self._server is not None:
            self._server.end()

    def environment(self, task: Task) -> PooledEnvironment[Worker]:
        """An environment that takes its worker at its first reset."""
        return PooledEnvironment(self, task)

    async def prepared(self) -> None:
        """Start the first worker, which shows whether the environment is available. Raises UserError."""
        self.give(await self.take())

    async def take(self) -> Worker:
        """A worker and its place; waits for a free one. Raises UserError if none can be started."""
        await self._places.acquire()
        try:
            return await self.start()
        except BaseException:
            self._places.release()
            raise

    def give(self, worker: Worker | None) -> None:
        """End the worker and return its place."""
        if worker is not None:
            self.drop(worker)
        self._places.release()

    def drop(self, worker: Worker) -> None:
        self._workers.discard(worker)
        worker.end()

    async def start(self) -> Worker:
        """A new worker for a place that the caller holds. Raises UserError if none can be started."""
        reason = ""
        async with self._starting:  # the fork server starts one at a time
            for _ in range(STARTS):
                self._server = self._server or self._start()
                try:
                    worker = await self._server.worker()
                except Lost as lost:
                    reason = str(lost)
                    self._server.end()
                    self._server = None
                    continue
                self._workers.add(worker)
                return worker
        raise UserError(
            f"no worker process for the environment could be started ({reason}); what it printed is above. "
            "pool.mode: never plays without them"
        )

    async def ask(self, worker: Worker, message: PoolMessage) -> PoolMessage:
        """The worker's answer, once a core is free. Raises Lost."""
        async with self._busy:
            return await worker.ask(message, seconds=self._deadline)


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Environments:
    """The source of a stage's environments.

    `make` creates one; `close` is awaited at the end by the event loop in which they stepped. `figures`: the
    measurements of each process in which they stepped (`rla.envs.protocols.Measured`). `prepared` returns once the
    first one is available, and raises UserError if none ever will be.
    """

    make: MakeEnv
    close: Callable[[], Awaitable[None]] = _nothing
    figures: Callable[[], Sequence[Mapping[str, float]]] = tuple
    prepared: Callable[[], Awaitable[None]] = _nothing


class PoolBackend(Protocol):
    """The `Pool` of a cluster backend (`rla.config.load`); `config.pool.own` is an instance."""

    def environments(self, config: Config, *, note: Callable[[str], None]) -> AbstractContextManager[Environments]:
        """Like `environments` below. Entered before an event loop runs, and left after it has ended."""


@contextmanager
def environments(config: Config, *, note: Callable[[str], None]) -> Iterator[Environments]:
    """The environments of a stage. On exit their processes are gone, and `note` is told how many were replaced.

    Raises UserError.
    """
    backend: PoolBackend = config.pool.own
    make = backend.environments if steps_on_cluster(config) else own_environments
    with make(config, note=note) as made:
        yield made


@contextmanager
def own_environments(config: Config, *, note: Callable[[str], None]) -> Iterator[Environments]:
    """Like `environments`, but always on this machine."""
    chosen = environment(config.env.name)
    if isinstance(chosen, Shares):
        service = chosen.service(config)
        measured = [service] if isinstance(service, Measured) else []
        yield Environments(service.make, service.close, lambda: [found for one in measured if (found := one.figures())])
        return
    if not steps_in_pool(config):
        yield Environments(lambda task: chosen.make(task, config))
        return
    workers = config.pool.workers or PER_CORE * usable_cores()
    with EnvironmentPool(
        resolved(config),
        workers=min(workers, config.rollout.concurrency),
        busy=BUSY_PER_CORE * usable_cores(),
        deadline_s=config.pool.step_deadline_s,
    ) as pool:
        yield Environments(pool.environment, prepared=pool.prepared)
    if pool.replaced:
        note(f"{pool.replaced} worker processes of environments died or hung and were replaced")


def steps_in_pool(config: Config) -> bool:
    if config.pool.mode != "auto":
        return config.pool.mode == "always"
    chosen = environment(config.env.name)
    return isinstance(chosen, Pooled) and chosen.slow(config)


def steps_on_cluster(config: Config) -> bool:
    """Whether environments step on other machines: slow ones, and services that may run on each machine."""
    if config.pool.own is None or config.pool.mode == "never":
        return False
    chosen = environment(config.env.name)
    if isinstance(chosen, Shares):
        return isinstance(chosen, Spreads) and chosen.spreads(config)
    return steps_in_pool(config)


def maker(argument: Mapping[str, Any]) -> Callable[[Task], Environment]:
    """Called in the fork server; `argument` is the whole config as JSON."""
    config = from_mapping(argument, where="the parameters of this stage")
    chosen = environment(config.env.name)
    if isinstance(chosen, Pooled):
        chosen.warm(config)

    def make(task: Task) -> Environment:
        made = chosen.make(task, config)
        if inspect.iscoroutinefunction(made.reset):
            raise UserError(
                f"env.name: {chosen.name} answers later, so it cannot step in the pool; set pool.mode: auto"
            )
        return made  # type: ignore[return-value]

    return make
