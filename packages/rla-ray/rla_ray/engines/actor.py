"""An engine on a node of the cluster: one actor, whose process holds engines and lends them to stages (`Seats`).

A stage opens a lease on its weights, hands requests in, and waits for replies in a call that is always open. A stage
that is killed does not say so: a lease whose stage has not asked for replies for LEASE seconds ends. What a stage that
was merely slow finds then is `LeaseOver`; it opens the lease again and asks again, with the same seeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.llm.base import Completion, ContextOverflow, Generator, Request, UnusableReply
from rla.processes import UsedDevice
from rla_ray.code_digest import refuse_other_code
from rla_ray.connection import devices_of_ray_worker
from rla_ray.engines.kept_engines import Wanted
from rla_ray.engines.seats import Seats
from rla_ray.engines.weights import model_from_files, visible

LEASE = 15.0  # seconds without a call of the stage; less than `Seats` waits for other weights
WAIT = 5.0  # seconds after which a call for replies returns without any
TICK = 1.0


class LeaseOver(Exception):
    """The stage holds no lease here: it was silent for too long, or the engine has started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a stage learns when it opens a lease. `context` None: the engine is in use with other weights."""

    context: int | None = None
    lacking: bool = False  # the weights are not on this node: send them along
    error: Exception | None = None
    devices: tuple[UsedDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """To one request: its completions, or why there are none."""

    number: int
    completions: list[Completion] | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """What a stage learns when it asks for replies. `wanted`: another stage waits for this engine."""

    replies: list[Reply]
    wanted: bool = False


@dataclass(slots=True, eq=False)
class Lease:
    """A stage's hold on an engine, and its requests."""

    digest: str  # of the weights
    ready: asyncio.Future[Generator | None]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    heard: float = field(default_factory=time.monotonic)
    waiting: int = 0  # calls for replies that are open
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)
    some: asyncio.Event = field(default_factory=asyncio.Event)
    holder: asyncio.Task[None] | None = None

    def expired(self, now: float) -> bool:
        return self.ready.done() and not self.waiting and now - self.heard > LEASE


class EngineActor:
    """All methods are called through Ray, on the actor's event loop."""

    def __init__(self) -> None:
        self._seats = Seats(one_awake=bool(devices_of_ray_worker()[0].gpu))
        self._leases: dict[str, Lease] = {}
        self._models: dict[str, str] = {}  # by stage, for `state`
        self._answered = 0
        self._asleep = False
        self._watch: asyncio.Task[None] | None = None

    async def open(
        self, stage: str, wanted: Wanted, digest: str, code: str, files: Mapping[str, Any] | None = None
    ) -> Opened:
        """Lend the wanted weights to a stage. `digest`: of the weights; `code`: of the stage's rla. `files`: references
        to the model's files, for a node that has it not.
        """
        if self._watch is None:
            self._watch = asyncio.create_task(self._end_silent())
        await self.close(stage)
        try:
            refuse_other_code(code)
            if not await asyncio.to_thread(visible, wanted.model, digest):
                if files is None:
                    return Opened(lacking=True)
                folder = await model_from_files(files, digest)
                wanted = replace(wanted, model=str(folder))
            lease = self._leases[stage] = Lease(digest=digest, ready=asyncio.get_running_loop().create_future())
            lease.holder = asyncio.create_task(self._hold(stage, wanted, lease))
            engine = await lease.ready
        except Exception as error:  # the stage is told, whatever it is
            self._leases.pop(stage, None)
            return Opened(error=as_told(error))
        if engine is None:
            self._leases.pop(stage, None)
            return Opened()
        self._models[stage] = wanted.model
        lease.heard = time.monotonic()
        self._asleep = False
        return Opened(context=engine.context, devices=devices_of_ray_worker())

    async def submit(self, stage: str, requests: Sequence[tuple[int, Request]], gone: Sequence[int | str]) -> None:
        """Take requests by number; of `gone`, numbers are requests that nobody waits for, names are ended sessions."""
        lease = self._leases.get(stage)
        if lease is None or not lease.ready.done():
            return  # the stage learns it where it asks for replies
        lease.heard = time.monotonic()
        engine = lease.ready.result()
        assert engine is not None
        for one in gone:
            if isinstance(one, str):
                engine.release(f"{stage}:{one}")
            elif one in lease.tasks:
                lease.tasks[one].cancel()
        for number, request in requests:
            session = None if request.session is None else f"{stage}:{request.session}"
            task = asyncio.create_task(self._answer(lease, engine, number, replace(request, session=session)))
            lease.tasks[number] = task

    async def replies(self, stage: str) -> Heard:
        """What has been answered since the last call; after WAIT seconds nothing. Raises LeaseOver."""
        lease = self._leases.get(stage)
        if lease is None or not lease.ready.done():
            raise LeaseOver(stage)
        lease.waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(lease.some.wait(), WAIT)
        finally:
            lease.waiting -= 1
            lease.heard = time.monotonic()
        lease.some.clear()
        found, lease.replies = lease.replies, []
        self._answered += len(found)
        others = [other for other in self._leases.values() if other.digest != lease.digest]
        return Heard(found, wanted=any(not other.ready.done() for other in others))

    async def close(self, stage: str) -> None:
        """End a stage's lease, and what it has asked for."""
        lease = self._leases.pop(stage, None)
        self._models.pop(stage, None)
        if lease is None:
            return
        for task in lease.tasks.values():
            task.cancel()
        await asyncio.gather(*lease.tasks.values(), return_exceptions=True)
        lease.over.set()
        if lease.holder is not None and lease.ready.done():
            await lease.holder
        elif lease.holder is not None:
            lease.holder.cancel()
            lease.ready.set_result(None)

    async def sleep(self, among: int) -> bool:
        """Give the engines' memory back until the next lease. False where a stage uses them. `among`: so many are told
        to at once.
        """
        try:
            self._asleep = not self._leases and await self._seats.sleep(among)
        except Exception:
            self._end_where_dead()
            raise
        return self._asleep

    def _end_where_dead(self) -> None:
        """An engine whose own processes have ended never answers again: without it this process is of no use. Ray
        starts another one, and the stage asks that for what it had asked here.
        """
        if self._seats.dead:
            os._exit(1)

    async def state(self) -> dict[str, Any]:
        """Where it stands and what it does. `node`: Ray's name of it; one host may have several."""
        import ray

        return {
            "host": platform.node(),
            "node": ray.get_runtime_context().get_node_id(),
            "process": os.getpid(),
            "models": sorted({Path(model).parent.name + "/" + Path(model).name for model in self._models.values()}),
            "stages": len(self._leases),
            "requests": sum(len(lease.tasks) for lease in self._leases.values()),
            "answered": self._answered,
            "asleep": self._asleep,
        }

    async def _hold(self, stage: str, wanted: Wanted, lease: Lease) -> None:
        """A task of its own has the lease: what enters a context has to leave it."""
        try:
            async with self._seats.lease(wanted, lease) as engine:
                if not lease.ready.done():
                    lease.ready.set_result(engine)
                if engine is not None:
                    await lease.over.wait()
        except Exception as error:  # whatever an engine's start raises is the stage's to know
            self._end_where_dead()
            if lease.ready.done():
                raise
            lease.ready.set_exception(error)

    async def _answer(self, lease: Lease, engine: Generator, number: int, request: Request) -> None:
        try:
            reply = Reply(number, completions=await engine.generate(request))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the stage is told, and the engine goes on
            self._end_where_dead()
            reply = Reply(number, error=as_told(error))
        finally:
            del lease.tasks[number]
        lease.replies.append(reply)
        lease.some.set()

    async def _end_silent(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            for stage in [name for name, lease in self._leases.items() if lease.expired(now)]:
                await self.close(stage)


def as_told(error: BaseException) -> Exception:
    """The exception for another process: what a Generator may raise keeps its kind, a defect is a RuntimeError. All of
    them can be pickled.
    """
    if isinstance(error, ContextOverflow):
        return error
    for kind in (UserError, ValueError, UnusableReply):
        if isinstance(error, kind):
            return kind(str(error))
    return RuntimeError(f"the engine failed: {type(error).__name__}: {error} (its own log says more)")
