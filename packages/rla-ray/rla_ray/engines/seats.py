"""The engines that a process keeps: one per architecture, each with one set of weights at a time.

Models with equal config.json share an engine. A lease names the weights. While it lasts, leases of the same weights may
join it, and leases of other weights wait for it to end. With `generator.lora: adapter` the engine keeps the base, each
lease brings its adapter, and leases of different adapters run side by side.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.base import Generator
from rla.models.checkpoint import MANIFEST, model_digest, open_checkpoint, parts_of, verify_model
from rla_ray.engines.bases import base_digest, file_state
from rla_ray.engines.kept_engines import Base, Engine, Make, Sleeps, Wanted, make_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rla.models.checkpoint import Adapter

log = logging.getLogger(__name__)

BUSY_SECONDS = 20.0  # seconds to wait for a lease of other weights: that of a killed stage expires soon
# Keys of config.json that name the origin of a model and not its architecture.
NAMES = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")


@dataclass(slots=True, eq=False)
class Seat:
    """An engine, the config that it was made with, and its users."""

    engine: Engine
    config: GeneratorConfig
    weights: str | None = None
    asleep: bool = False
    users: set[Any] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


class Seats:
    """All engines of a process. `make` builds one; the default starts the config's backend. With `one_awake` all others
    sleep, because one engine fills the GPU.
    """

    def __init__(self, make: Make | None = None, *, one_awake: bool = False) -> None:
        self._make, self._one_awake = make or make_engine, one_awake
        self._seats: dict[str, Seat] = {}
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def lease(self, wanted: Wanted, user: object) -> AsyncIterator[Generator | None]:
        """The engine with the wanted weights, or with the wanted adapter over its base. None if the engine is in use
        with other weights.

        Raises UserError if no engine can be made of this model or these parameters.
        """
        # In a thread, so that other leases go on: new weights without a recorded digest, and new bases, are read in
        # full.
        found = await asyncio.to_thread(found_in, wanted)
        seat = await self._take(wanted, found, user)
        try:
            yield None if seat is None else _generator_of(seat, wanted, found)
        finally:
            if seat is not None:
                seat.users.discard(user)
                async with seat.changed:
                    seat.changed.notify_all()

    def close(self) -> None:
        """End all engines."""
        for seat in self._seats.values():
            seat.engine.close()
        self._seats.clear()

    @property
    def dead(self) -> bool:
        """Whether an engine's own processes have died, so that it will never answer again."""
        return any(getattr(seat.engine, "dead", False) for seat in self._seats.values())

    async def sleep(self, among: int) -> bool:
        """Release the engines' memory: engines that can sleep do so, the others end. False if one is in use. `among`:
        how many fall asleep at once.
        """
        async with self._opening:
            if any(seat.users for seat in self._seats.values()):
                return False
            for shape in list(self._seats):
                await self._put_to_sleep(shape, among)
        return True

    async def _put_to_sleep(self, shape: str, among: int) -> None:
        seat = self._seats[shape]
        if isinstance(seat.engine, Sleeps):
            seat.asleep = True
            if not await seat.engine.sleep(among):
                seat.weights = None
            return
        seat.engine.close()
        del self._seats[shape], seat
        _empty_gpu()

    async def _alone(self, seat: Seat | None) -> bool:
        """Whether all other engines sleep, now or once they are idle within BUSY_SECONDS."""
        for shape in list(self._seats):
            if self._seats[shape] is seat or self._seats[shape].asleep:
                continue
            if not await idle(self._seats[shape]):
                return False
            await self._put_to_sleep(shape, 1)
        return True

    async def _take(self, wanted: Wanted, found: Found, user: object) -> Seat | None:
        async with self._opening:
            seat = self._seats.get(found.place)
            if seat is not None and not await free(seat, found.weights, wanted.config):
                return None
            if self._one_awake and not await self._alone(seat):
                return None
            if seat is None or seat.config != wanted.config or seat.weights != found.weights:
                await asyncio.to_thread(verify_model, wanted.model)
            if seat is None or seat.config != wanted.config:
                seat = self._start(found.place, wanted, found.weights)
            await _prepare_seat(seat, wanted, found.weights)
            seat.users.add(user)
            return seat

    def _start(self, shape: str, wanted: Wanted, weights: str) -> Seat:
        """Start an engine. It replaces one of the same architecture with other parameters."""
        before = self._seats.pop(shape, None)
        if before is not None:
            before.engine.close()
        started = time.perf_counter()
        try:
            engine = self._make(wanted)
        except (RuntimeError, ValueError) as error:
            if not self._seats:
                raise
            raise UserError(
                f"{wanted.model}: a second engine, for models of another shape, does not start ({error}); lower "
                "generator.gpu_memory, or use engines of the stages' own (another generator.backend)"
            ) from error
        log.info("%s: engine started in %.1f s", wanted.model, time.perf_counter() - started)
        seat = Seat(engine=engine, config=wanted.config, weights=weights)
        self._seats[shape] = seat
        return seat


async def free(seat: Seat, weights: str, config: GeneratorConfig) -> bool:
    """Whether a lease may begin, now or within BUSY_SECONDS."""
    return await _holds_in_time(seat, lambda: not seat.users or (seat.weights == weights and seat.config == config))


async def idle(seat: Seat) -> bool:
    """Whether an engine is idle, now or within BUSY_SECONDS."""
    return await _holds_in_time(seat, lambda: not seat.users)


async def _holds_in_time(seat: Seat, condition: Callable[[], bool]) -> bool:
    try:
        async with asyncio.timeout(BUSY_SECONDS), seat.changed:
            await seat.changed.wait_for(condition)
    except TimeoutError:
        return False
    return True


def _empty_gpu() -> None:
    """Return the memory of ended engines to the GPU. PyTorch would keep it in its cache."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


async def _prepare_seat(seat: Seat, wanted: Wanted, weights: str) -> None:
    """Load the wanted weights. A first user also gets an empty cache, as of a new engine, so that shards do not depend
    on earlier runs.
    """
    if seat.asleep and isinstance(seat.engine, Sleeps):
        await seat.engine.wake()
        seat.asleep = False
    if seat.weights != weights:
        started = time.perf_counter()
        seat.weights = None  # until all are loaded
        await seat.engine.reload(wanted.model, stop_ids=wanted.stop_ids)
        seat.weights = weights
        log.info("%s: weights in place in %.2f s", wanted.model, time.perf_counter() - started)
    elif not seat.users:
        seat.engine.forget()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The contents of a model folder: the digest of its weights or base, the engine's `place`, and the adapter."""

    weights: str
    place: str
    adapter: Adapter | None = None


def found_in(wanted: Wanted) -> Found:
    """Read the digests. The digest of a new base is computed from its weights. Raises UserError."""
    shape = _shape_of(wanted.model)
    if wanted.config.lora == "merged":
        return Found(weights=weights_of(wanted.model), place=shape)
    parts = parts_of(wanted.model)
    base = base_digest(parts, dtype=wanted.config.dtype)
    return Found(weights=base, place=f"{shape} {base}", adapter=parts.adapter)


def _generator_of(seat: Seat, wanted: Wanted, found: Found) -> Generator:
    """The Generator that answers the requests of a lease."""
    if wanted.config.lora == "merged":
        return seat.engine
    return cast("Base", seat.engine).over(found.adapter, stop_ids=wanted.stop_ids)


def _shape_of(model: str) -> str:
    """Equal for models that can swap weights: derived from config.json, or the hub id itself."""
    file = Path(model) / "config.json"
    if not file.is_file():
        return model
    try:
        content = json.loads(file.read_text())
    except ValueError:
        raise UserError(f"{file}: not valid JSON; write the checkpoint again") from None
    return json.dumps({key: value for key, value in content.items() if key not in NAMES}, sort_keys=True)


def weights_of(model: str) -> str:
    """The digest in the checkpoint's record, or of the files of a plain folder, or the hub id itself."""
    folder = Path(model)
    if not folder.is_dir():
        return model
    checkpoint = folder.parent if folder.name == "model" and (folder.parent / MANIFEST).is_file() else folder
    recorded = open_checkpoint(checkpoint).digest
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return recorded or _digest_of(folder, tuple((path.name, *file_state(path)) for path in files))


@lru_cache(maxsize=64)
def _digest_of(folder: Path, _: tuple[tuple[str, int, int, int], ...]) -> str:
    """Cached until a file of the folder changes."""
    return model_digest(folder)
