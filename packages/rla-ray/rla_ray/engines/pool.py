"""The stage's side of the engines on a cluster: one Generator over all of them.

The requests of a session go to the engine that served its last one, which has the prompt in its cache. If that engine
is LAG requests behind the least busy one, the session moves there. Requests carry their seeds, so the output does not
depend on which engine answers. Unanswered requests of a lost engine are sent to other engines. Requests made within one
turn of the event loop go to each engine in one call.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.base import Completion, Request, check_request, usable_completions
from rla.llm.chat import ChatFormat
from rla_ray.code_digest import code_digest
from rla_ray.connection import connected, first_line
from rla_ray.engines.actor import LeaseOver, Opened, Reply
from rla_ray.engines.cluster import AT_ONCE, EngineActorRef, stood_engines
from rla_ray.engines.kept_engines import Wanted
from rla_ray.engines.leased import Asked, PoolEngine
from rla_ray.engines.seats import weights_of
from rla_ray.engines.weights import put_files

LAG = 16  # requests by which an engine may be behind before its sessions move to another
TOGETHER = 8.0  # seconds to wait for engines that start together; less than an unused lease lasts
RETRY = 1.0  # seconds between checks of an engine that is lost or in use
QUIET = 2.0  # seconds without a request after which a stage lends its engines out


def cluster_engines(config: GeneratorConfig, *, model: Path | str, chat: ChatFormat, seed: int) -> RayGenerator:
    """The engines of the cluster with these weights loaded, started if they do not run yet.

    Raises UserError if there is no cluster, or if the engines refuse the model. Must not be called inside an event
    loop.
    """
    ray = connected(config.own.address)
    wanted = Wanted(
        model=str(Path(model).resolve()) if Path(model).is_dir() else str(model),
        # the parameters of one engine, as if it ran in the stage's own process
        config=replace(config, backend=config.own.engine, own=None),
        stop_ids=tuple(sorted(chat.stop_ids)),
        seed=seed,
        end_id=chat.end_id,
    )
    return RayGenerator(ray, stood_engines(ray, config), wanted=wanted, patience=config.own.patience)


class RayGenerator:
    """Generator over the engines of a cluster. One event loop uses it, from its first request to `close`."""

    def __init__(self, ray: Any, engines: Iterable[EngineActorRef], *, wanted: Wanted, patience: float) -> None:
        self._ray, self._wanted, self._patience = ray, wanted, patience
        self._stage = f"{os.getpid()}-{uuid4().hex[:12]}"
        self._digest = weights_of(wanted.model)
        self._files: dict[str, Any] | None = None
        self._engines = [PoolEngine(ref) for ref in engines]
        self._numbers = count()
        self._asked: dict[int, Asked] = {}
        self._homes: dict[str, PoolEngine] = {}  # by session
        self._tasks: list[asyncio.Task[None]] = []
        self._due = False
        self._lost: Exception | None = None
        self._unplaced: set[int] = set()
        # when an engine last reported that it is in use, and when the last request came
        self._in_use = self._asked_at = time.monotonic()
        self._why = ""  # the reason that an engine gave for failing to open a lease
        self.context = self._open_first()

    async def generate(self, request: Request) -> list[Completion]:
        """Sample `request.samples` completions. Raises ValueError as `check_request` does, and UserError
        if no engine is left.
        """
        check_request(request, context=self.context)
        if self._lost is not None:
            raise self._lost
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listen(engine)) for engine in self._engines]
            self._tasks.append(asyncio.create_task(self._despair()))
        number, self._asked_at = next(self._numbers), time.monotonic()
        asked = Asked(request, asyncio.get_running_loop().create_future())
        self._asked[number] = asked
        self._place(number, asked)
        try:
            return usable_completions(await asked.future)
        finally:
            if self._asked.pop(number, None) is not None:
                self._unplaced.discard(number)
                if asked.engine is not None:
                    asked.engine.asked.discard(number)
                    asked.engine.gone.append(number)
                    self._flush_soon()

    def release(self, session: str) -> None:
        """Discard the cached state of a session."""
        home = self._homes.pop(session, None)
        if home is not None:
            home.gone.append(session)
            self._flush_soon()

    def close(self) -> None:
        """Return the engines to the cluster, where they stay loaded."""
        self._lost = UserError("generator.backend ray: the engines were given back")
        for task in self._tasks:
            if not task.get_loop().is_closed():
                task.cancel()
        for engine in self._engines:
            engine.left()
        closing = [engine.ref.handle.close.remote(self._stage) for engine in self._engines]
        if closing:  # so that the next `rla engines list`, through other handles, sees them free
            self._ray.wait(closing, num_returns=len(closing), timeout=AT_ONCE)

    def _open_first(self) -> int:
        """Wait for the first engine and return its context length in tokens. The other engines join while it works.

        Raises UserError.
        """
        while time.monotonic() < self._in_use + self._patience:
            calls = {self._opening(engine): engine for engine in self._engines}
            ready, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=TOGETHER)
            contexts = [self._opened(calls[ref]) for ref in ready]
            if any(contexts):
                return next(filter(None, contexts))
            time.sleep(RETRY)
        raise UserError(
            f"generator.backend ray: in {self._patience:.0f} seconds no engine was available: all {len(self._engines)} "
            f"are lost, or have no room{self._why}; see `rla engines list`; `rla engines stop` ends all"
        )

    def _opening(self, engine: PoolEngine) -> Any:
        """The call that opens the lease on an engine, started if necessary."""
        if engine.opening is None:
            engine.opening = engine.ref.handle.open.remote(
                self._stage, self._wanted, self._digest, code_digest(), self._files
            )
        return engine.opening

    def _opened(self, engine: PoolEngine) -> int | None:
        """The context length of an engine whose opening call has ended; None if it is lost, in use, or must be asked
        again.
        """
        from ray.exceptions import RayError

        try:
            return self._noted(engine, self._ray.get(engine.opening))
        except RayError:
            return None
        finally:
            engine.opening = None

    def _noted(self, engine: PoolEngine, answer: Opened) -> int | None:
        """Send the files with the next call if the engine lacks the weights. Raises the engine's refusal, because all
        others would refuse as well.
        """
        if isinstance(answer.error, UserError):
            raise answer.error
        if answer.error is not None:  # only this engine's problem: its disk is full, or its GPU is taken
            self._why = f"; {engine.ref.name} said: {first_line(answer.error)}"
            return None
        if answer.context is None and not answer.lacking:
            self._in_use = time.monotonic()
        if answer.lacking and self._files is None:
            self._files = put_files(self._ray, Path(self._wanted.model), dtype=self._wanted.config.dtype)
        if answer.context is not None:
            engine.leased(answer.devices)
        return answer.context

    def _place(self, number: int, asked: Asked) -> None:
        """Assign a request to an engine, or keep it until one is available."""
        engine = self._choose(asked.request.session)
        asked.engine = engine
        if engine is None:
            self._unplaced.add(number)
            return
        engine.asked.add(number)
        engine.requests.append((number, asked.request))
        self._flush_soon()

    def _choose(self, session: str | None) -> PoolEngine | None:
        usable = [engine for engine in self._engines if engine.open]
        if not usable:
            return None
        free = min(usable, key=lambda engine: len(engine.asked))
        home = self._homes.get(session) if session is not None else None
        if home is None or not home.open or len(home.asked) > len(free.asked) + LAG:
            home = free
        if session is not None:
            self._homes[session] = home
        return home

    def _flush_soon(self) -> None:
        if not self._due and self._tasks:
            self._due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._due = False
        for engine in self._engines:
            if engine.open and (engine.requests or engine.gone):
                engine.ref.handle.submit.remote(self._stage, engine.requests, engine.gone)
                engine.requests, engine.gone = [], []

    async def _listen(self, engine: PoolEngine) -> None:
        """Handle an engine's replies, and reopen its lease after a loss, for as long as the stage runs."""
        from ray.exceptions import RayError

        while True:
            try:
                if not engine.open:
                    await self._reopen(engine)
                heard = await engine.ref.handle.replies.remote(self._stage)
                for reply in heard.replies:
                    self._settle(engine, reply)
                if heard.wanted and self._can_spare(engine):
                    engine.ref.handle.close.remote(self._stage)
                    self._give_up(engine)
            except (RayError, LeaseOver):
                self._give_up(engine)
                await asyncio.sleep(RETRY)
            except (UserError, ValueError, RuntimeError) as error:  # raised by `_noted`
                self._fail(error)
                return

    def _settle(self, engine: PoolEngine, reply: Reply) -> None:
        engine.asked.discard(reply.number)
        asked = self._asked.pop(reply.number, None)
        if asked is None or asked.future.done():
            return
        if reply.completions is None:
            asked.future.set_exception(reply.error or RuntimeError("an engine gave neither a reply nor an error"))
        else:
            asked.future.set_result(reply.completions)

    def _can_spare(self, engine: PoolEngine) -> bool:
        """Whether the engine can go to another stage. Two stages with different weights get half of the engines each,
        as long as both have requests.
        """
        held = sum(one.open for one in self._engines)
        quiet = not self._asked and time.monotonic() > self._asked_at + QUIET
        return held > (len(self._engines) + 1) // 2 or (quiet and not engine.gone)

    async def _reopen(self, engine: PoolEngine) -> None:
        """Open the lease of a lost engine again. Raises RayError if it is not back yet, UserError if it refuses."""
        while not engine.open:
            if not self._asked:
                await asyncio.sleep(RETRY)
                continue
            opening = self._opening(engine)
            try:
                answer = await opening
            finally:
                engine.opening = None
            if self._noted(engine, answer) is None and not answer.lacking:
                await asyncio.sleep(RETRY)
        waiting, self._unplaced = sorted(self._unplaced), set()
        for number in waiting:
            self._place(number, self._asked[number])

    def _give_up(self, engine: PoolEngine) -> None:
        """Send the unanswered requests of a lost engine to the others."""
        for number in engine.left():
            self._place(number, self._asked[number])

    async def _despair(self) -> None:
        """Raise UserError if no engine was available for `patience` seconds."""
        since = time.monotonic()
        while time.monotonic() < since + self._patience:
            await asyncio.sleep(RETRY)
            if not self._asked or any(engine.open for engine in self._engines):
                since = time.monotonic()
            since = max(since, self._in_use)
        self._fail(
            UserError(
                f"generator.backend ray: all engines were lost for {self._patience:.0f} seconds{self._why}; see `rla "
                "engines list`, repair the cluster and call the stage again: it continues where it stopped"
            )
        )

    def _fail(self, error: Exception) -> None:
        self._lost = error
        for asked in self._asked.values():
            if not asked.future.done():
                asked.future.set_exception(error)
