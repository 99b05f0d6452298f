"""What an engine that is kept has to be able to do, and how one is made."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rla.config.sections import GeneratorConfig
from rla.llm.base import Completion, Generator, Request
from rla.llm.scripted import ScriptedGenerator

if TYPE_CHECKING:
    from rla.models.checkpoint import Adapter


class Engine(Protocol):
    """A Generator that takes other weights while it runs."""

    context: int

    async def generate(self, request: Request) -> list[Completion]: ...

    async def reload(self, model: str, *, stop_ids: Collection[int]) -> None: ...

    def forget(self) -> None: ...

    def release(self, session: str) -> None: ...

    def close(self) -> None: ...


class Base(Engine, Protocol):
    """An engine whose weights are a base that adapters are put over."""

    def over(self, adapter: Adapter | None, *, stop_ids: Collection[int]) -> Generator: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a lease asks for."""

    model: str
    config: GeneratorConfig
    stop_ids: tuple[int, ...]
    seed: int
    end_id: int = 0  # that ends a reply of `scripted`


@runtime_checkable
class Sleeps(Protocol):
    """An engine that can give its GPUs' memory back without ending."""

    async def sleep(self, among: int) -> bool: ...  # of so many at once; whether it still has its weights

    async def wake(self) -> None: ...


Make = Callable[[Wanted], Engine]


def make_engine(wanted: Wanted) -> Engine:
    """The engine of the wanted backend; one of vLLM can sleep."""
    from rla.llm.factory import make_transformers

    if wanted.config.backend == "scripted":
        return KeptScripted(context=wanted.config.context, stop_id=wanted.end_id)
    if wanted.config.backend == "vllm":
        from rla_ray.engines.vllm_sleeping import SleepingVllm

        return SleepingVllm(wanted.config, model=wanted.model, stop_ids=wanted.stop_ids, seed=wanted.seed)
    return make_transformers(wanted.config, wanted.model, wanted.stop_ids)


class KeptScripted(ScriptedGenerator):
    """Without weights there is nothing to change."""

    async def reload(self, model: str, *, stop_ids: Collection[int]) -> None:
        """All models reply alike."""

    def forget(self) -> None:
        """Nothing is cached."""
