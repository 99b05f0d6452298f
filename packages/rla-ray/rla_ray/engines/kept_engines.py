"""The interface of an engine that stays loaded between stages, and the function that makes one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rla.config.sections import GeneratorConfig
from rla.llm.base import Completion, Generator, Request
from rla.llm.factory import ScriptedGenerator

if TYPE_CHECKING:
    from rla.models.checkpoint import Adapter


class Engine(Protocol):
    """A Generator that can load other weights while it runs."""

    context: int

    async def generate(self, request: Request) -> list[Completion]: ...

    async def reload(self, model: str, *, stop_ids: Collection[int]) -> None: ...

    def forget(self) -> None: ...

    def release(self, session: str) -> None: ...

    def close(self) -> None: ...


class Base(Engine, Protocol):
    """An engine that keeps a base model loaded and puts adapters over it."""

    def over(self, adapter: Adapter | None, *, stop_ids: Collection[int]) -> Generator: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The weights and the engine that a lease asks for."""

    model: str
    config: GeneratorConfig
    stop_ids: tuple[int, ...]
    seed: int
    end_id: int = 0  # the token that ends a reply of the `scripted` backend


@runtime_checkable
class Sleeps(Protocol):
    """An engine that can release its GPUs' memory without ending."""

    # `among`: how many sleep at once; returns whether it still has its weights
    async def sleep(self, among: int) -> bool: ...

    async def wake(self) -> None: ...


Make = Callable[[Wanted], Engine]


def make_engine(wanted: Wanted) -> Engine:
    """Make an engine of the wanted backend. An engine of vLLM can sleep."""
    from rla.llm.factory import make_transformers

    if wanted.config.backend == "scripted":
        return KeptScripted(context=wanted.config.context, stop_id=wanted.end_id)
    if wanted.config.backend == "vllm":
        from rla_ray.engines.vllm_sleeping import SleepingVllm

        return SleepingVllm(wanted.config, model=wanted.model, stop_ids=wanted.stop_ids, seed=wanted.seed)
    return make_transformers(wanted.config, wanted.model, wanted.stop_ids)


class KeptScripted(ScriptedGenerator):
    """The scripted engine. It has no weights, so there are none to change."""

    async def reload(self, model: str, *, stop_ids: Collection[int]) -> None:
        """Nothing to do: all models give the same replies."""

    def forget(self) -> None:
        """Nothing to do: there is no cache."""
