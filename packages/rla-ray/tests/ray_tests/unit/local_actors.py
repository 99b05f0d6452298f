"""Engines as actors of one event loop in a thread of its own: all that a pool asks of Ray, without a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any

from ray.exceptions import RayActorError
from rla_ray.engines.actor import EngineActor
from rla_ray.engines.cluster import EngineActorRef
from rla_ray.engines.seats import Seats

from rla.llm.base import Completion, FinishReason, Request


class Answer:
    """The result of a call, which coroutines of any loop can await."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self.future).__await__()


class Echo:
    """An engine that says which one it is, and what seed it was given. It answers when `free` is set."""

    def __init__(self, number: int) -> None:
        self.context, self.number = 512, number
        self.free = asyncio.Event()
        self.sessions: list[str | None] = []
        self.released: list[str] = []
        self.dead = False

    async def generate(self, request: Request) -> list[Completion]:
        self.sessions.append(request.session)
        await self.free.wait()
        ids = [self.number, request.seed]
        return [
            Completion(token_ids=ids, logprobs=[-1.0] * 2, allowed=[[]] * 2, finish_reason=FinishReason.STOP)
            for _ in range(request.samples)
        ]

    async def reload(self, model: str, *, stop_ids: Sequence[int]) -> None: ...

    def forget(self) -> None: ...

    def release(self, session: str) -> None:
        self.released.append(session)

    def close(self) -> None: ...


class Handle:
    """An actor's, whose methods are called by `.remote`."""

    def __init__(self, actors: LocalActors, number: int) -> None:
        self._actors, self.number = actors, number
        self.echo = Echo(number)
        self.started = self._new_actor()
        self.dead = False

    def _new_actor(self) -> EngineActor:
        actor = EngineActor()
        actor._seats = Seats(lambda wanted: self.echo)  # type: ignore[arg-type,return-value]
        return actor

    def kill(self) -> None:
        """What was asked of it is lost, and every call from now on."""
        self.dead = True

    def restart(self) -> None:
        """As Ray does on another node: nobody holds a lease there."""
        self.started, self.dead = self._new_actor(), False

    def free(self) -> None:
        self._actors.loop.call_soon_threadsafe(self.echo.free.set)

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any) -> Any:
            task = asyncio.ensure_future(getattr(self.started, name)(*args))
            while not task.done():
                if self.dead:
                    task.cancel()
                    break
                await asyncio.wait([task], timeout=0.02)
            if self.dead:
                raise RayActorError
            return task.result()

        class Method:
            remote = staticmethod(lambda *args: self._actors.submit(call(*args)))

        return Method


class LocalActors:
    """In place of the module `ray`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def submit(self, call: Any) -> Answer:
        return Answer(asyncio.run_coroutine_threadsafe(call, self.loop))

    def engines(self, count: int) -> tuple[list[EngineActorRef], list[Handle]]:
        handles = [Handle(self, number) for number in range(count)]
        return [EngineActorRef(name=f"engine-{one.number}", handle=one) for one in handles], handles

    def wait(self, refs: Sequence[Answer], *, num_returns: int, timeout: float) -> tuple[list[Answer], list[Answer]]:
        assert num_returns == len(refs)
        wait([ref.future for ref in refs], timeout=timeout)
        done = [ref for ref in refs if ref.future.done()]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref: Answer) -> Any:
        return ref.future.result()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


async def until(condition: Callable[[], object], *, seconds: float = 20.0) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds
        await asyncio.sleep(0.01)
