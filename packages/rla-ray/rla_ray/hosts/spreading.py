"""The stage's side of the actors that run environments: assigns episodes, and replays them after a loss.

An episode goes to the actor with the fewest open episodes per core and stays there. If an actor is lost, each of its
episodes is replayed on another one, as `PooledEnvironment` does after the loss of a worker. The actor may come back,
empty, on the same node or on another.

Answers do not depend on the actor that gives them, so the output does not depend on the assignment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Protocol

from rla.envs.fork_server import PoolMessage
from rla.envs.observation import Observation
from rla.envs.pool import Lost, PooledEnvironment
from rla.errors import UserError
from rla.store.records import Task

TRIES = 8  # actors that one step may lose: lost nodes are not the environment's fault
TOGETHER = 30.0  # seconds to wait for actors that start together, so that the first does not get all episodes
RETRY = 1.0  # seconds between checks of a lost actor
ENDING = 10.0  # seconds that actors have to close their environments


class HostLink(Protocol):
    """A link to one actor (`rla_ray.hosts.host.EnvironmentHost`). Awaited methods raise Lost if the actor is gone."""

    cores: int

    async def begin(self) -> PoolMessage:
        """Wait until the actor is ready. Raises UserError if it never will be."""
        ...

    async def answer(self, episode: int, message: PoolMessage) -> PoolMessage: ...

    async def ping(self) -> None: ...

    async def close(self) -> Sequence[Mapping[str, float]]: ...

    def end(self, episode: int) -> None:
        """Tell the actor that the episode is over, without waiting for it."""
        ...

    def restart(self) -> None:
        """Kill the actor; it restarts."""
        ...

    def kill(self) -> None:
        """Kill the actor for good."""
        ...


@dataclass(slots=True, eq=False)
class KnownHost:
    """An actor as seen by this stage. `open`: numbers of the episodes that it holds."""

    link: HostLink
    usable: bool = False
    open: set[int] = field(default_factory=set)
    waking: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class HostSeat:
    """An episode's place on an actor. `abilities`: the environment's optional methods, besides `reset` and `step`."""

    host: KnownHost
    number: int
    abilities: Sequence[str] = ()


class SpreadEnvironment(PooledEnvironment[HostSeat]):
    """An `AwaitedEnvironment` on a cluster. From its first reset on it is also `Concludes` and `Recalls` if the
    environment is.

    Callers test these abilities with `isinstance`, which looks for the member.
    """

    async def reset(self) -> Observation:
        seen = await super().reset()
        assert self.worker is not None
        if "stopped" in self.worker.abilities:
            self.stopped = self._stopped
        if "recall" in self.worker.abilities:
            self.recall = self._recall
        self._recalled: PoolMessage = {}
        return seen

    async def step(self, action: str) -> Observation:
        """Take one step."""
        return await self._answer({"step": action, **self._taken_up()})

    async def _stopped(self) -> Observation:
        return await self._answer({"stopped": True, **self._taken_up()})

    def _recall(self, actions: Sequence[str], answers: Sequence[str]) -> None:
        self._recalled = {"recall": [list(actions), list(answers)]}

    def _taken_up(self) -> PoolMessage:
        """Recalled actions travel with the next message, and are replayed with it."""
        recalled, self._recalled = self._recalled, {}
        return recalled


class HostPool:
    """A context manager that kills its actors on exit. Only one event loop may use it.

    `places`: the number of episodes open at once. `deadline_s`: seconds without an answer after which an actor is
    pinged, and seconds it has to respond. `patience_s`: seconds the stage waits while all actors are lost. `lost`
    counts lost actors; `replaced` counts episodes that moved after a loss.
    """

    tries = TRIES

    def __init__(self, links: Sequence[HostLink], *, places: int, deadline_s: float, patience_s: float) -> None:
        self.lost, self.replaced = 0, 0
        self.figures: list[Mapping[str, float]] = []
        self._hosts = [KnownHost(link) for link in links]
        self._deadline, self._patience = deadline_s, patience_s
        self._places = asyncio.Semaphore(places)
        self._numbers = count()
        self._some = asyncio.Event()
        self._refused: UserError | None = None
        self._opening: asyncio.Task[None] | None = None

    def __enter__(self) -> HostPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for host in self._hosts:
            host.link.kill()

    def environment(self, task: Task) -> SpreadEnvironment:
        """An environment that takes its place at its first reset."""
        return SpreadEnvironment(self, task)

    async def prepared(self) -> None:
        """Return as soon as one actor is ready. Raises UserError if an actor refuses the environment."""
        await self._least_busy()

    async def take(self) -> HostSeat:
        """Wait for a place for an episode. Raises UserError."""
        await self._places.acquire()
        try:
            return await self.start()
        except BaseException:
            self._places.release()
            raise

    async def start(self) -> HostSeat:
        """A seat for a place that the caller already holds. Raises UserError if all actors stay lost or one refuses."""
        host = await self._least_busy()
        seat = HostSeat(host, next(self._numbers))
        host.open.add(seat.number)
        return seat

    def give(self, seat: HostSeat | None) -> None:
        """Return the place."""
        if seat is not None:
            self.drop(seat)
        self._places.release()

    def drop(self, seat: HostSeat) -> None:
        """Release the seat: the episode takes no more steps there."""
        seat.host.open.discard(seat.number)
        seat.host.link.end(seat.number)

    async def ask(self, seat: HostSeat, message: PoolMessage) -> PoolMessage:
        """The answer of an episode's actor. Raises Lost."""
        host = seat.host
        if seat.number not in host.open:
            raise Lost("was lost with its node")
        try:
            answer = await self._answered(host, seat.number, message)
        except Lost:
            if seat.number in host.open:
                self._lose(host)
            raise
        if "unknown" in answer:  # it restarted, and no request came while it was away
            host.open.discard(seat.number)
            raise Lost("was lost with its process")
        seat.abilities = answer.get("abilities", seat.abilities)
        return answer

    async def close(self) -> None:
        """Make the actors close their environments, and keep their measurements."""
        for task in [self._opening, *(host.waking for host in self._hosts)]:
            if task is not None:
                task.cancel()
        usable = [host for host in self._hosts if host.usable]
        calls = [asyncio.ensure_future(host.link.close()) for host in usable]
        if calls:
            await asyncio.wait(calls, timeout=ENDING)
        for call in calls:
            if call.done() and not call.cancelled() and call.exception() is None:
                self.figures.extend(call.result())
            call.cancel()

    async def _answered(self, host: KnownHost, number: int, message: PoolMessage) -> PoolMessage:
        call = asyncio.ensure_future(host.link.answer(number, message))
        try:
            while not call.done():
                await asyncio.wait({call}, timeout=self._deadline)
                if not call.done():
                    await self._sign_of_life(host)
            return call.result()
        finally:
            call.cancel()

    async def _sign_of_life(self, host: KnownHost) -> None:
        """Ping an actor. Environments have deadlines of their own, so an actor that does not respond at all is lost."""
        try:
            async with asyncio.timeout(self._deadline):
                await host.link.ping()
        except TimeoutError:
            host.link.restart()
            raise Lost(f"was on a node that did not answer within {self._deadline:g} s") from None

    def _lose(self, host: KnownHost) -> None:
        host.usable = False
        host.open.clear()
        self.lost += 1
        host.waking = asyncio.create_task(self._wake(host))

    async def _wake(self, host: KnownHost) -> None:
        """Get an actor ready for episodes, however long that takes."""
        while True:
            try:
                answer = await host.link.begin()
            except Lost:
                await asyncio.sleep(RETRY)
                continue
            except UserError as error:
                self._refused = error
            else:
                if "refused" in answer:
                    self._refused = UserError(answer["refused"])
                host.usable = "refused" not in answer
            self._some.set()
            return

    async def _open(self) -> None:
        """Wait a while for all actors, so that the first one does not get all episodes."""
        for host in self._hosts:
            host.waking = asyncio.create_task(self._wake(host))
        waiting = [host.waking for host in self._hosts if host.waking is not None]
        await asyncio.wait(waiting, timeout=min(TOGETHER, self._patience))

    async def _least_busy(self) -> KnownHost:
        """The actor with the fewest open episodes per core. Raises UserError if none is ready in time."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    if self._refused is not None:
                        raise self._refused
                    usable = [host for host in self._hosts if host.usable]
                    if usable:
                        return min(usable, key=lambda host: (len(host.open) + 1) / host.link.cores)
                    self._some.clear()
                    await self._some.wait()
        except TimeoutError:
            raise UserError(
                f"pool.backend ray: for {self._patience:.0f} seconds none of {len(self._hosts)} actors with "
                "environments was available: their nodes are lost, or other work has their cores; repair the cluster "
                "or lower pool.own.cpus, and call the stage again: it continues where it stopped"
            ) from None
