"""A vLLM engine that takes other weights while it runs, and releases its GPUs' memory while something else trains.

vLLM has two levels of sleep. Level 1 keeps the weights in host memory. Level 2 drops them, so they have to be read
again. Level 1 is used if the host has room for the weights twice, because training needs memory too, counted for all
engines that fall asleep together. With adapters it is always level 1, because the base is not read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rla.config.sections import GeneratorConfig
from rla.llm.base import Completion, Generator, Request
from rla.llm.vllm_engine import VllmGenerator, WorkerMethods
from rla.models.checkpoint import Adapter, parts_of
from rla.models.load import merged_folder

ABORT_SECONDS = 60.0  # limit for the engine to notice that its requests were aborted
ROOM = 2  # free host memory that level 1 needs, as a multiple of the weights


class SleepingVllm(VllmGenerator):
    """Without a GPU there is no memory to release, and sleeping does nothing."""

    worker = "rla_ray.engines.vllm_sleeping.ReloadingWorker"
    sleeps = True

    def __init__(self, config: GeneratorConfig, *, model: Path | str, stop_ids: Collection[int], seed: int) -> None:
        super().__init__(config, model=model, stop_ids=stop_ids, seed=seed)
        self._dtype = config.dtype
        self._keeps_base = config.lora == "adapter"
        self._size = _weight_bytes(model)

    @property
    def dead(self) -> bool:
        """Whether vLLM's own processes have ended, for example out of memory."""
        return self._engine is not None and bool(self._engine.errored)

    async def sleep(self, among: int) -> bool:
        """Sleep. Returns whether the engine still has its weights. `among`: how many fall asleep at once, perhaps on
        this host.
        """
        if not self.sleeps:
            return True
        kept = self._keeps_base or free_bytes() > ROOM * self._size * among
        await self._engine.sleep(level=1 if kept else 2)
        return kept

    async def wake(self) -> None:
        """Take the memory back. If the weights were dropped, only `reload` may follow."""
        if self.sleeps:
            await self._engine.wake_up()

    async def reload(self, model: Path | str, *, stop_ids: Collection[int]) -> None:
        """Load the weights of another model of the same architecture, after the last request has been answered."""
        await self._drop_cached()  # refused while an aborted request still runs
        with merged_folder(model, dtype=self._dtype) as whole:
            await self._engine.collective_rpc("load_other_weights", args=(str(whole),))
        await self._drop_cached()
        self._stop_ids = sorted(stop_ids)

    async def _drop_cached(self) -> None:
        async with asyncio.timeout(ABORT_SECONDS):
            while not await self._engine.reset_prefix_cache():
                await asyncio.sleep(0.05)

    def forget(self) -> None:
        """Does nothing: the prefix cache belongs to the current weights."""

    def over(self, adapter: Adapter | None, *, stop_ids: Collection[int]) -> Generator:
        """A Generator over the base, with `adapter` if there is one. Raises UserError if its rank is too large."""
        return _Adapted(self, lora=None if adapter is None else self.lora_of(adapter), stop_ids=stop_ids)

    async def _prepare(self) -> None:
        if self._keeps_base and not self.sleeps:  # on a CPU
            await self._engine.collective_rpc("keep_adapters_apart")
        await super()._prepare()


class _Adapted:
    """Generator over the base of an engine, or over the base with one adapter."""

    def __init__(self, engine: SleepingVllm, *, lora: Any, stop_ids: Collection[int]) -> None:
        self.context = engine.context
        self._engine, self._lora, self._stop_ids = engine, lora, sorted(stop_ids)

    async def generate(self, request: Request) -> list[Completion]:
        return await self._engine.answer(request, lora=self._lora, stop_ids=self._stop_ids)

    def release(self, session: str) -> None:
        """Does nothing: the prefix cache evicts by itself."""

    def close(self) -> None:
        """Does nothing: the engine stays open for others."""


class ReloadingWorker(WorkerMethods):
    """vLLM's worker with methods for other weights and for adapters beside the base."""

    reload_weights: Any
    model_runner: Any

    def load_other_weights(self, folder: str) -> None:
        """Load the weights of a folder of the same architecture.

        vLLM 0.32 copies them layer by layer, and a layer without its own weights keeps its prepared data. On a CPU this
        is the packed matrix of an output layer that is tied to the embeddings, which is packed again here. On a GPU
        tied layers share their storage, so nothing has to be prepared.
        """
        from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

        self.reload_weights(weights_path=folder)
        for module in self.model_runner.get_model().modules():
            method = getattr(module, "quant_method", None)
            if isinstance(method, UnquantizedEmbeddingMethod):
                method.process_weights_after_loading(module)

    def keep_adapters_apart(self) -> None:
        """On a CPU: keep requests of the base unaffected by requests of adapters in the same batch.

        vLLM 0.32 marks rows of the base with slot -1. The Triton kernels skip them, but the CPU kernels index with -1
        and so apply the adapter in the last slot, unless the whole batch uses the base.
        """
        import torch
        from vllm.lora.punica_wrapper import punica_cpu

        shrink = punica_cpu.sgmv_shrink
        if shrink.__module__ == __name__:
            return

        def shrink_rows_of_adapters(inputs: Any, weights: Any, output: Any, *rest: Any) -> None:
            shrink(inputs, weights, output, *rest)
            _, lengths, slots, *_ = rest
            output[torch.repeat_interleave(slots, lengths) < 0] = 0.0  # so the expanded product is 0 too

        punica_cpu.sgmv_shrink = shrink_rows_of_adapters


def free_bytes(proc: Path = Path("/proc"), group: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of memory that this process may still use, by the host's available memory or its container's limit."""
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    free = next(int(words[1]) << 10 for words in lines if words[0] == "MemAvailable:")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # no container, or a kind without these files
        return free
    return free if limit == "max" else min(free, int(limit) - int(used))


def _weight_bytes(model: Path | str) -> int:
    """Size of a folder's weights in bytes; 0 for a hub id, whose files are elsewhere."""
    return sum(file.stat().st_size for file in parts_of(model).weights)
