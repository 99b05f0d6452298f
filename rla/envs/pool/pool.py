"""The pool: at most `workers` environments live at once, at most `busy` of them compute at once.

An episode has its worker from its first reset to its end; a worker waits while its episode waits for a reply. So there
may be more workers than cores, and more episodes than workers: those wait for a place, and the holder of a place
never waits for another.

An environment is deterministic given its task. So the episode of a lost worker goes on in another one: its actions are
played again, and every answer must be the one that was given before. A step that loses two workers ends the episode.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from rla.envs.observation import EnvironmentFailure, Observation
from rla.envs.pool.nursery import Recipe
from rla.envs.pool.remote import Lost, Nursery, Worker
from rla.envs.pool.wire import PoolMessage, failure_in, to_observation
from rla.errors import UserError
from rla.store.records import Task

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
