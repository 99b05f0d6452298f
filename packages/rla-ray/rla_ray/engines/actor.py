"""An engine on a node of the cluster: one actor, whose process holds engines and lends them to stages (`Seats`).

A stage opens a lease on its weights, submits requests, and collects replies with a long poll. A killed stage cannot say
goodbye, so a lease expires if its stage has not polled for LEASE seconds. A stage that was merely slow then gets
`LeaseOver`: it opens the lease again and repeats its requests with the same seeds.
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
from rla.llm.base import Completion, Generator, Request, UnusableReply
from rla_ray.code_digest import refuse_other_code
from rla_ray.connection import devices_of_ray_worker
from rla_ray.devices import UsedDevice
from rla_ray.engines.kept_engines import Wanted
from rla_ray.engines.seats import Seats
from rla_ray.engines.weights import model_from_files, visible

LEASE = 15.0  # seconds without a poll after which a lease expires; less than `Seats` waits for other weights
WAIT = 5.0  # seconds after which a poll returns without replies
TICK = 1.0


class LeaseOver(Exception):
    """The stage holds no lease here: it was silent for too long, or the engine has restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The result of opening a lease. `context` is the context length in tokens, or None if the engine is in use with
    other weights.
    """

    context: int | None = None
    lacking: bool = False  # the weights are not on this node: send the files
    error: Exception | None = None
    devices: tuple[UsedDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one request: its completions, or the error that prevented them."""

    number: int
    completions: list[Completion] | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """The result of a poll. `wanted`: another stage waits for this engine."""

    replies: list[Reply]
    wanted: bool = False


@dataclass(slots=True, eq=False)
class Lease:
    """A stage's hold on an engine, and the stage's requests."""

    digest: str  # of the weights
    ready: asyncio.Future[Generator | None]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    heard: float = field(default_factory=time.monotonic)
    waiting: int = 0  # polls in progress
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)
    some: asyncio.Event = field(default_factory=asyncio.Event)
    holder: asyncio.Task[None] | None = None

    def expired(self, now: float) -> bool:
        return self.ready.done() and not self.waiting and now - self.heard > LEASE


class EngineActor:
    """The methods are called through Ray and run on the actor's event loop."""

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
        """Lend the wanted weights to a stage. `digest` is the digest of the weights and `code` the digest of the
        stage's rla. `files` are references to the model's files, for a node that does not have them.
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
        except Exception as error:  # reported to the stage, whatever it is
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
        """Accept numbered requests. In `gone`, a number cancels a request and a string ends a session."""
        lease = self._leases.get(stage)
        if lease is None or not lease.ready.done():
            return  # the stage learns of it at its next poll
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
        """Everything answered since the last poll, or nothing after WAIT seconds. Raises LeaseOver."""
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
        """End a stage's lease and cancel its requests."""
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
        """Release the engines' memory until the next lease. False if a stage uses them. `among`: how many engines are
        told to sleep at once.
        """
        try:
            self._asleep = not self._leases and await self._seats.sleep(among)
        except Exception:
            self._end_where_dead()
            raise
        return self._asleep

    def _end_where_dead(self) -> None:
        """If the engine's own processes have died, it never answers again and this process is useless, so exit. Ray
        starts a replacement, and the stage repeats its requests there.
        """
        if self._seats.dead:
            os._exit(1)

    async def state(self) -> dict[str, Any]:
        """The state for `rla engines list`. `node` is Ray's node id; one host may run several nodes."""
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
        """Hold the lease in a task of its own, because a context has to be left by the task that entered it."""
        try:
            async with self._seats.lease(wanted, lease) as engine:
                if not lease.ready.done():
                    lease.ready.set_result(engine)
                if engine is not None:
                    await lease.over.wait()
        except Exception as error:  # errors of an engine's start are reported to the stage
            self._end_where_dead()
            if lease.ready.done():
                raise
            lease.ready.set_exception(error)

    async def _answer(self, lease: Lease, engine: Generator, number: int, request: Request) -> None:
        try:
            reply = Reply(number, completions=await engine.generate(request))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # reported to the stage; the engine goes on
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
    """An exception that can be pickled for another process. Errors that a Generator may raise keep their type; any
    other becomes a RuntimeError.
    """
    for kind in (UserError, ValueError, UnusableReply):
        if isinstance(error, kind):
            return kind(str(error))
    return RuntimeError(f"the engine failed: {type(error).__name__}: {error} (its own log says more)")
